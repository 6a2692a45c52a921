//! What Slurm said of this node last, as far as it must outlive the agent: it holds until Slurm says otherwise.

use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{By, Drained, SlurmConfig};
use crate::files::{FileError, at};
use crate::probe::kept::Kept;

/// What is remembered of it; nothing where Slurm is not here.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWord {
    /// `CPUTot`.
    pub cpus: Option<u32>,
    /// Its drain.
    pub drained: Option<Drained>,
}

impl LastWord {
    /// What Slurm told an agent that kept it in `file`; nothing once the administrator says that there is no Slurm.
    #[must_use]
    pub fn remembered(file: &Path, config: &SlurmConfig) -> Self {
        let kept = || Kept::read_only(file.to_owned()).load();
        let kept = (config.enabled != Some(false)).then(kept).flatten();
        kept.unwrap_or_default()
    }

    /// Whether both say the same. The state's words of a drain do not count: they change with each job that begins or ends.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        fn drain(word: &LastWord) -> Option<(Option<&str>, Option<By>)> {
            word.drained.as_ref().map(|d| (d.reason.as_deref(), d.by))
        }
        self.cpus == other.cpus && drain(self) == drain(other)
    }

    /// Keeps it in `file`, unless that says the same; where there is nothing to remember, there is no file.
    ///
    /// # Errors
    /// IO.
    pub fn keep(&self, file: &Path) -> Result<(), FileError> {
        if *self == Self::default() {
            return match std::fs::remove_file(file) {
                Err(e) if e.kind() != ErrorKind::NotFound => Err(at("remove", file)(e)),
                _ => Ok(()),
            };
        }
        let kept = Kept::from(file.to_owned());
        if kept.load().is_some_and(|there: Self| there.is_as(self)) {
            return Ok(());
        }
        kept.save(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(state: &str, reason: &str) -> LastWord {
        LastWord {
            cpus: Some(64),
            drained: Some(Drained {
                state: state.to_owned(),
                reason: Some(reason.to_owned()),
                by: None,
            }),
        }
    }

    #[test]
    fn a_restart_remembers_the_drain_with_the_cores_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slurm.json");
        let mut config = SlurmConfig::default();
        let remembered = |config: &SlurmConfig| LastWord::remembered(&file, config);
        assert_eq!(remembered(&config), LastWord::default());
        let word = drained("MIXED+DRAIN", "bad disk");
        word.keep(&file).unwrap();
        assert_eq!(remembered(&config), word);
        // The administrator's word.
        config.enabled = Some(false);
        assert_eq!(remembered(&config), LastWord::default());
        config.enabled = None;
        let ended = LastWord {
            drained: None,
            ..word
        };
        ended.keep(&file).unwrap();
        assert_eq!(remembered(&config), ended);
        // Slurm is not here.
        for _ in 0..2 {
            LastWord::default().keep(&file).unwrap();
            assert!(!file.exists());
        }
    }

    #[test]
    fn a_job_that_ends_on_a_drained_node_is_no_news() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slurm.json");
        let (mixed, idle) = (
            drained("MIXED+DRAIN", "bad disk"),
            drained("IDLE+DRAIN", "bad disk"),
        );
        mixed.keep(&file).unwrap();
        idle.keep(&file).unwrap();
        let remembered = || LastWord::remembered(&file, &SlurmConfig::default());
        assert_eq!(remembered(), mixed, "nothing was written");
        let other = drained("IDLE+DRAIN", "new disk");
        assert!(idle.is_as(&mixed) && !idle.is_as(&other) && !idle.is_as(&LastWord::default()));
        other.keep(&file).unwrap();
        assert_eq!(remembered(), other);
    }
}
