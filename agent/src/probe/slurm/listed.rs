//! When all jobs of a large cluster are listed anew. The controller sends the jobs of one node to nobody: it sends one job,
//! one user's, or all (`squeue --nodelist` picks from all of them), and on a large cluster all of them cost it much
//! (`docs/adr/0030-asking-slurm.md`). The record of one node it looks up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::SlurmJobs;
use super::node::SlurmNode;

/// From so many jobs on they are listed when something has changed here, and now and then.
pub(super) const MANY: usize = 5_000;
/// An older figure of jobs is none (specification, Job Counts).
const LONGEST: Duration = Duration::from_secs(120);
/// So long a list serves: what is taken from it stands until the next round, some 30 s later at the least.
const SERVES: Duration = Duration::from_secs(90);
/// A controller that says nothing for a shorter time is overloaded, and not back: lists would be too much for it.
const LASTS: Duration = Duration::from_secs(120);

/// What the controller said of this node last, for those who would ask it for more.
#[derive(Debug, Default, Clone)]
pub struct LastNode(Arc<Mutex<Last>>);

#[derive(Debug, Default)]
struct Last {
    said: Option<(Instant, SlurmNode)>,
    /// Since when it says nothing.
    silent: Option<Instant>,
    back: Option<Instant>,
}

impl LastNode {
    fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it said when it was asked then; none: it did not answer.
    pub(super) fn set(&self, at: Instant, said: Option<SlurmNode>) {
        let mut last = self.lock();
        if said.is_none() {
            last.silent.get_or_insert(at);
        } else if let Some(since) = last.silent.take()
            && at.saturating_duration_since(since) >= LASTS
        {
            last.back = Some(at);
        }
        last.said = said.map(|node| (at, node));
    }

    /// When it was asked, and what it said.
    pub(super) fn get(&self) -> Option<(Instant, SlurmNode)> {
        self.lock().said.clone()
    }

    /// When it answered for the first time after a silence that lasted.
    pub(super) fn back(&self) -> Option<Instant> {
        self.lock().back
    }
}

/// The last list of a large cluster.
#[derive(Debug)]
pub(super) struct Listed {
    at: Instant,
    /// The node as it was known then, and its jobs; none where these two contradict each other, or the record was not had.
    known: Option<(SlurmNode, SlurmJobs)>,
    /// How long it may serve.
    limit: Duration,
}

impl Listed {
    /// `middle`: the age of the middle one of all ends, in seconds; none if no job had ended.
    pub(super) fn new(at: Instant, node: Option<&SlurmNode>, jobs: &SlurmJobs, middle: Option<u64>) -> Self {
        // A job that began or ended between the two is in one of them alone.
        let fits = |n: &&SlurmNode| jobs.active.is_empty() == (n.cpus_allocated == 0);
        Self {
            at,
            known: node.filter(fits).map(|n| (lasting(n), jobs.clone())),
            // About half of the time for which the controller remembers ends: none is missed.
            limit: middle.map_or(SERVES, |seconds| Duration::from_secs(seconds).min(SERVES)),
        }
    }

    /// What it says of now, where that is worth more than another list: the cluster is large, and the node's record, asked
    /// for since, is the same as then.
    pub(super) fn serves(&self, last: Option<&(Instant, SlurmNode)>, now: Instant) -> Option<SlurmJobs> {
        let (then, jobs) = self.known.as_ref()?;
        let same = last.is_some_and(|(at, node)| *at > self.at && lasting(node) == *then);
        (same && self.is_younger(self.limit, now)).then(|| jobs.clone())
    }

    /// Whether another list is too much so soon, also for who does not know the node's record: a controller that does not
    /// answer that has enough to do.
    pub(super) fn suffices(&self, now: Instant) -> bool {
        self.is_younger(LONGEST, now)
    }

    fn is_younger(&self, limit: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < limit
    }
}

/// Without what says nothing of the jobs here: that the scheduler has plans comes and goes.
fn lasting(node: &SlurmNode) -> SlurmNode {
    SlurmNode {
        state_text: node.state_text.replace("+PLANNED", ""),
        ..node.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::parse;
    use super::*;

    const MIXED: &str = include_str!("../../../fixtures/slurm/node-mixed-22.05.txt");

    #[test]
    fn a_list_serves_while_the_record_fits_it_and_says_the_same() {
        let start = Instant::now();
        let later = start + Duration::from_secs(60);
        let with = |from: &str, to: &str| parse(&MIXED.replace(from, to), "vm").unwrap();
        let mixed = parse(MIXED, "vm").unwrap();
        let planned = with("State=MIXED", "State=MIXED+PLANNED");
        let free = with("CPUAlloc=1", "CPUAlloc=0");
        let serves = |then: &SlurmNode, active: &[u64], since: &SlurmNode| {
            let jobs = SlurmJobs {
                active: active.to_vec(),
                pending: Some(0),
                ended: None,
                since: 0,
            };
            let listed = Listed::new(start, Some(then), &jobs, None);
            let served = listed.serves(Some(&(later, since.clone())), later);
            assert!(served.as_ref().is_none_or(|s| *s == jobs));
            served.is_some()
        };
        assert!(serves(&mixed, &[7], &mixed) && serves(&free, &[], &free));
        assert!(!serves(&mixed, &[7], &free) && !serves(&free, &[], &mixed));
        assert!(serves(&mixed, &[7], &planned) && serves(&planned, &[7], &mixed));
        // One of the two is of before or after a job began.
        assert!(!serves(&mixed, &[], &mixed) && !serves(&free, &[7], &free));
    }
}
