//! When heartbeats did not arrive: the last few times, for whoever asks why a node looked silent.
//!
//! A heartbeat that could not be delivered is not kept: the next one says more, and neither gateway nor chain takes an
//! old one. What happened meanwhile is counted where it is measured (errors, jobs, samples) and arrives with it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{StateDir, read_json, write_json};
use crate::files::Durability;

/// Outages kept; the newest win.
const LIMIT: usize = 64;

/// From the first heartbeat that came to nothing to the next that was accepted; UNIX seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// First failure.
    pub from: u64,
    /// Next success; none while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Code of the first failure.
    pub code: String,
    /// Attempts that came to nothing.
    pub attempts: u32,
}

/// The last outages, oldest first.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outages(VecDeque<Outage>);

impl Outages {
    /// As kept; empty if nothing is, or nothing that can be read: it is history, not memory.
    #[must_use]
    pub fn load(state: &StateDir) -> Self {
        read_json(&state.outages()).ok().flatten().unwrap_or_default()
    }

    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Outage> {
        self.0.iter()
    }

    /// A heartbeat came to nothing; whether this is to be written down: when an outage begins. One that is killed
    /// meanwhile goes on.
    pub(crate) fn begin(&mut self, now: u64, code: &str) -> bool {
        if let Some(present) = self.0.back_mut().filter(|o| o.until.is_none()) {
            present.attempts = present.attempts.saturating_add(1);
            return false;
        }
        if self.0.len() >= LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(Outage {
            from: now,
            until: None,
            code: code.to_owned(),
            attempts: 1,
        });
        true
    }

    /// A heartbeat was accepted; whether this is to be written down.
    pub(crate) fn end(&mut self, now: u64) -> bool {
        let present = self.0.back_mut().filter(|o| o.until.is_none());
        present.is_some_and(|present| {
            present.until = Some(now);
            true
        })
    }

    /// Writes them.
    pub(crate) fn save(&self, state: &StateDir) {
        // A full disk is told by the status file, which is written at the same time.
        write_json(&state.outages(), self, 0o644, Durability::Atomic).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_bounded_survive_a_restart_and_the_newest_win() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let mut all = Outages::load(&state);
        assert!(!all.end(1));
        assert_eq!(all.iter().count(), 0);
        for n in 0..100 {
            assert!(all.begin(n * 10, "gateway_unreachable"));
            assert!(!all.begin(n * 10 + 1, "gateway_timeout"));
            assert!(all.end(n * 10 + 5));
        }
        all.save(&state);
        assert_eq!(Outages::load(&state), all);
        assert_eq!(all.iter().count(), LIMIT);
        let last = all.iter().next_back().unwrap();
        assert_eq!((last.from, last.until, last.attempts), (990, Some(995), 2));
        assert_eq!(last.code, "gateway_unreachable");
        // Killed during an outage: it goes on.
        all.begin(2000, "gateway_unreachable");
        all.save(&state);
        let mut again = Outages::load(&state);
        again.begin(2010, "gateway_unreachable");
        again.end(2020);
        assert_eq!(again.iter().next_back().unwrap().until, Some(2020));
        assert_eq!(again.iter().next_back().unwrap().from, 2000);
    }
}
