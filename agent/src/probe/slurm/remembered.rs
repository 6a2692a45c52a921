//! What an agent has kept of Slurm, for the time before it is asked.

use std::path::{Path, PathBuf};

use super::{Ledger, SlurmJobs};
use crate::probe::kept::Kept;

/// File of the job ledger in the state directory.
const LEDGER: &str = "jobs.json";

/// Where the job ledger is kept.
#[must_use]
pub fn ledger_path(state_dir: &Path) -> PathBuf {
    state_dir.join(LEDGER)
}

/// What ran here when an agent last looked, which may be nothing; none if the controller has not shown it.
#[must_use]
pub fn remembered(state_dir: &Path, unix: u64) -> Option<SlurmJobs> {
    let ledger: Ledger = Kept::read_only(ledger_path(state_dir)).load()?;
    Some(SlurmJobs {
        active: ledger.active()?.to_vec(),
        pending: None,
        ended: Some(ledger.ended(unix)),
        since: ledger.since,
    })
}
