//! What clusters let appear of job ids before they changed that.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hpc_schema::id::ClusterId;
use hpc_schema::registry::JobIds;

use super::Registry;

/// An agent may not have heard of a change for so long: the answer to one heartbeat tells it, and two of the longest
/// intervals (120 s) leave room for one that was lost.
const UNHEARD: Duration = Duration::from_secs(240);

/// The settings before the last changes, and when those were seen.
#[derive(Debug, Default)]
pub(super) struct Former(HashMap<ClusterId, (JobIds, Instant)>);

impl Former {
    /// A stricter setting counts at once: what it forbids would stand in transactions.
    pub(super) fn note(&mut self, cluster: ClusterId, before: JobIds, since: JobIds, now: Instant) {
        if shows(before) < shows(since) {
            self.0.insert(cluster, (before, now));
        } else {
            self.0.remove(&cluster);
        }
    }

    fn of(&self, cluster: &ClusterId, now: Instant) -> Option<JobIds> {
        let (before, changed) = self.0.get(cluster)?;
        (now.duration_since(*changed) <= UNHEARD).then_some(*before)
    }
}

/// How much of job ids a setting shows.
const fn shows(setting: JobIds) -> u8 {
    match setting {
        JobIds::None => 0,
        JobIds::Hashed => 1,
        JobIds::Plain => 2,
    }
}

impl Registry {
    /// The cluster's setting `job_ids` before its last change, if that one showed less, as long as an agent may not have heard
    /// of the change: 240 s.
    #[must_use]
    pub fn former_job_ids(&self, cluster: &ClusterId) -> Option<JobIds> {
        self.read().former.of(cluster, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_counts_for_four_minutes_after_one_that_shows_more_has_taken_its_place() {
        let (mut former, now) = (Former::default(), Instant::now());
        let (here, elsewhere) = ("hpc-cluster-1".parse().unwrap(), "hpc-cluster-2".parse().unwrap());
        former.note(ClusterId::clone(&here), JobIds::Hashed, JobIds::Plain, now);
        assert_eq!(former.of(&here, now + UNHEARD), Some(JobIds::Hashed));
        assert_eq!(former.of(&here, now + UNHEARD + Duration::from_secs(1)), None);
        assert_eq!(former.of(&elsewhere, now), None);
        // What is forbidden from now on is not taken, nor what came before that.
        former.note(here.clone(), JobIds::Plain, JobIds::None, now);
        assert_eq!(former.of(&here, now), None);
    }
}
