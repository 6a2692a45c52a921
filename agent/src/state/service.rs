//! Whether the agent keeps this node out of service, and every change of that: the audit of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{StateDir, read_json, write_json};
use crate::files::{Durability, FileError};
use crate::health::{OutOfService, Reason};

/// Changes kept; the newest win.
const LIMIT: usize = 64;

/// What is kept.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// The node is out of service, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<OutOfService>,
    /// Slurm may have a drain of ours for it.
    #[serde(default)]
    pub in_slurm: bool,
    /// Slurm has shown it drained since: if it does not any more, somebody has resumed it there.
    #[serde(default)]
    pub shown: bool,
    /// Findings in spite of which a person has returned the node, while they last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pardoned: Vec<Reason>,
    /// What has changed, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub log: VecDeque<ServiceChange>,
}

/// One change, or a wish that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceChange {
    /// UNIX seconds.
    pub at: u64,
    /// `out`, `returned`, `forced` or `refused`.
    pub what: String,
    /// `policy`, or the person.
    pub by: String,
    /// Why.
    pub why: String,
    /// The wish that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
}

/// A person's wish, put into the state directory: whoever may write there is the agent's user, or root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceWish {
    /// Names it.
    pub id: String,
    /// UNIX seconds.
    pub at: u64,
    /// Who says so.
    pub by: String,
    /// Return without proof.
    pub force: bool,
    /// Why.
    pub reason: String,
}

impl ServiceRecord {
    /// As kept; nothing if it was never written.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir) -> Result<Self, FileError> {
        Ok(read_json(&state.service())?.unwrap_or_default())
    }

    /// Writes it, durably: a drain must outlive a restart.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.service(), self, 0o644, Durability::Synced)
    }

    /// Adds a change.
    pub fn note(&mut self, change: ServiceChange) {
        self.log.push_back(change);
        while self.log.len() > LIMIT {
            self.log.pop_front();
        }
    }
}

impl ServiceWish {
    /// Takes the wish that lies there, if one does: it is gone afterwards, whatever it says.
    #[must_use]
    pub fn take(state: &StateDir) -> Option<Self> {
        let path = state.service_wish();
        if !path.exists() {
            return None;
        }
        let wish = read_json(&path);
        if let Err(e) = std::fs::remove_file(&path) {
            tracing::warn!("{}: {e}", path.display());
            return None;
        }
        match wish {
            Ok(wish) => wish,
            Err(e) => {
                tracing::warn!("a wish that cannot be read: {e}");
                None
            }
        }
    }

    /// Puts it there.
    ///
    /// # Errors
    /// IO.
    pub fn put(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.service_wish(), self, 0o600, Durability::Atomic)
    }

    /// Takes it back, if it lies there still: whoever put it there waits no longer.
    pub fn withdraw(&self, state: &StateDir) {
        let path = state.service_wish();
        if matches!(read_json::<Self>(&path), Ok(Some(lies)) if lies.id == self.id) {
            std::fs::remove_file(&path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_taken_once_and_the_log_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        assert_eq!(ServiceWish::take(&state), None);
        let wish = ServiceWish {
            id: "w1".into(),
            at: 1,
            by: "alice".into(),
            force: true,
            reason: "new card".into(),
        };
        wish.put(&state).unwrap();
        assert_eq!(ServiceWish::take(&state), Some(wish.clone()));
        // Only one's own is taken back.
        wish.put(&state).unwrap();
        ServiceWish {
            id: "w2".into(),
            ..wish.clone()
        }
        .withdraw(&state);
        assert!(state.service_wish().exists());
        wish.withdraw(&state);
        assert_eq!(ServiceWish::take(&state), None);
        std::fs::write(state.service_wish(), "nonsense").unwrap();
        assert_eq!(ServiceWish::take(&state), None);
        assert!(!state.service_wish().exists());
        let mut record = ServiceRecord::load(&state).unwrap();
        for at in 0..100 {
            record.note(ServiceChange {
                at,
                what: "out".into(),
                by: "policy".into(),
                why: String::new(),
                wish: None,
            });
        }
        record.save(&state).unwrap();
        let kept = ServiceRecord::load(&state).unwrap();
        assert_eq!((kept.log.len(), kept.log[0].at), (LIMIT, 36));
    }
}
