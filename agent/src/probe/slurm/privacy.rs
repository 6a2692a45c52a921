//! Whether the controller shows other users' jobs. Who is no operator of a site with `PrivateData=jobs` gets an empty list, as
//! on a cluster without any job.

use std::time::Duration;

use super::SlurmConfig;
use crate::probe::tool::Tool;

/// Beside a list, whose collector has ten seconds.
const DEADLINE: Duration = Duration::from_secs(2);
const LIMIT: usize = 256 << 10;

/// What the controller's configuration says of that.
#[derive(Debug)]
pub(super) struct Privacy {
    config: SlurmConfig,
    scontrol: Option<Tool>,
    /// None: not asked yet, or in vain.
    hides: Option<bool>,
}

impl Privacy {
    pub(super) fn new(config: &SlurmConfig) -> Self {
        Self {
            config: config.clone(),
            scontrol: None,
            hides: None,
        }
    }

    /// Whether jobs are hidden from those without rights; none while nobody says so. Once it is said it is not asked again.
    pub(super) fn hides_jobs(&mut self) -> Option<bool> {
        if self.hides.is_none() {
            self.hides = self.ask();
        }
        self.hides
    }

    fn ask(&mut self) -> Option<bool> {
        if self.scontrol.is_none() {
            self.scontrol = self.config.tool("scontrol", DEADLINE, LIMIT);
        }
        let said = self.scontrol.as_mut()?.run(&["show", "config"]);
        let text = said.inspect_err(|e| tracing::debug!("{e}")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let hidden = setting(&text, "PrivateData").unwrap_or_default();
        Some(hidden.split(',').any(|word| word == "jobs"))
    }
}

/// A value of `scontrol show config`: `SlurmUser               = slurm(64030)`.
#[must_use]
pub fn setting<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    let mut rows = config.lines().filter_map(|l| l.split_once('='));
    rows.find(|(k, _)| k.trim() == key).map(|(_, v)| v.trim())
}
