//! What the loop asks of the thread that writes into the state directory, and what it hears of it.

use std::path::PathBuf;
use std::time::Instant;

use zeroize::Zeroizing;

use super::anew::Anew;
use super::identity::Places;
use crate::command::Diagnostic;
use crate::config::SamplingConfig;
use crate::files::FileError;
use crate::history::Values;
use crate::probe::slurm::LastWord;
use crate::sample::Category;
use crate::sequence::{Reservation, Reserved, SequenceError};
use crate::state::{Outages, Registration, ServiceWish};
use crate::uplink::{Identity, Known};

/// A sample: UNIX seconds and the moment beside it.
pub(super) type Taken = (Category, Values, u64, Instant);

/// What a diagnostic has found.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) of: Diagnostic,
    pub(super) at: u64,
    pub(super) value: serde_json::Value,
}

/// What is to be written; of each kind the newest.
#[derive(Default)]
pub(super) struct Asked {
    /// As JSON: the loop hands over no copy of all its words.
    pub(super) status: Option<Vec<u8>>,
    pub(super) samples: Vec<Taken>,
    pub(super) bounds: Option<SamplingConfig>,
    pub(super) outages: Option<Outages>,
    pub(super) slurm: Option<LastWord>,
    pub(super) block: Option<Reservation>,
    /// Certificate and key in one file.
    pub(super) certificate: Option<Zeroizing<String>>,
    pub(super) registration: Option<Registration>,
    pub(super) reports: Vec<Report>,
    /// Where a certificate is looked for.
    pub(super) places: Option<Places>,
    /// The CA file, to be read again: by default it lies in the state directory.
    pub(super) ca: Option<PathBuf>,
    /// What it is to hold, PEM.
    pub(super) trusted: Option<(PathBuf, String)>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) status: Option<Result<(), FileError>>,
    pub(super) samples: Option<Result<(), FileError>>,
    pub(super) slurm: Option<Result<(), FileError>>,
    pub(super) block: Option<Result<Reserved, SequenceError>>,
    pub(super) certificate: Option<Result<(), FileError>>,
    pub(super) registration: Option<Result<(), FileError>>,
    pub(super) reports: Option<Result<(), FileError>>,
    /// The certificate that was looked for.
    pub(super) found: Option<Identity>,
    /// What the CA file holds, if it could be read.
    pub(super) known: Option<Known>,
    pub(super) ca: Option<Result<(), FileError>>,
    /// The registration that has taken the place of the agent's, and what belongs to it.
    pub(super) anew: Option<Anew>,
    /// What a person has put there.
    pub(super) wish: Option<ServiceWish>,
}
