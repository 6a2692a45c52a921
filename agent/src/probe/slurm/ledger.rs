//! Jobs that ended on this node within 24 hours, from transitions that the agent saw itself: no accounting database is
//! needed. Kept in a file, so that a restart loses nothing that the controller still remembers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::queue::{End, Queue};
use crate::probe::window::DayCount;

/// The memory.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// UNIX seconds since which jobs are followed.
    pub since: u64,
    completed: DayCount,
    failed: DayCount,
    withdrawn: DayCount,
    unknown: DayCount,
    /// Jobs counted already that the controller still lists → their end. A job that runs again ends again.
    counted: BTreeMap<u64, u64>,
    /// Jobs that ran at the last look.
    active: Vec<u64>,
    /// Whether the controller has shown what runs here, and nothing ran since that it did not show.
    told: bool,
    /// Whether the controller has ever listed a job, of whatever node, and none has run here since that it hid.
    shown: bool,
}

/// Counts of 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Completed.
    pub completed: u32,
    /// Failed.
    pub failed: u32,
    /// Cancelled or preempted.
    pub withdrawn: u32,
    /// Ended while nobody looked, for so long that the controller has forgotten how.
    pub unknown: u32,
}

impl Ledger {
    /// Nothing yet.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// Takes over what the controller lists now; true if the memory changed.
    pub fn update(&mut self, queue: &Queue, now: u64) -> bool {
        let before = self.clone();
        for (id, (how, end)) in &queue.ended {
            if self.counted.insert(*id, *end) == Some(*end) {
                continue;
            }
            let count = match how {
                End::Completed => &mut self.completed,
                End::Failed => &mut self.failed,
                End::Withdrawn => &mut self.withdrawn,
            };
            count.add(*end, now, 1);
        }
        for id in &self.active {
            if queue.active.binary_search(id).is_err() && !queue.ended.contains_key(id) {
                self.unknown.add(now, now, 1);
            }
        }
        self.counted.retain(|id, _| queue.ended.contains_key(id));
        self.active.clone_from(&queue.active);
        *self != before
    }

    /// Jobs that ran at the last look, rising; none if what ran is not known.
    #[must_use]
    pub fn active(&self) -> Option<&[u64]> {
        (self.told || !self.active.is_empty()).then_some(self.active.as_slice())
    }

    /// Whether jobs that the controller does not list are known not to run; true if the memory changed.
    pub fn tell(&mut self, told: bool) -> bool {
        std::mem::replace(&mut self.told, told) != told
    }

    /// Takes over whether the controller has listed jobs, and whether it hides one that runs here; true if the memory changed.
    pub fn show(&mut self, lists: bool, hides: bool) -> bool {
        let shown = !hides && (self.shown || lists);
        std::mem::replace(&mut self.shown, shown) != shown
    }

    /// Whether an empty list is known to say that there are no jobs.
    #[must_use]
    pub fn shown(&self) -> bool {
        self.shown
    }

    /// The last 24 hours.
    #[must_use]
    pub fn ended(&self, now: u64) -> Ended {
        Ended {
            completed: self.completed.total(now),
            failed: self.failed.total(now),
            withdrawn: self.withdrawn.total(now),
            unknown: self.unknown.total(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_303_803;

    fn queue(active: &[u64], ended: &[(u64, End, u64)]) -> Queue {
        Queue {
            active: active.to_vec(),
            pending: 0,
            ended: ended.iter().map(|(id, how, end)| (*id, (*how, *end))).collect(),
            ..Queue::default()
        }
    }

    #[test]
    fn each_end_counts_once_over_restarts_and_after_it_is_forgotten() {
        let mut l = Ledger::new(NOW);
        assert!(l.update(
            &queue(
                &[7],
                &[(1, End::Completed, NOW - 100), (2, End::Failed, NOW - 90)]
            ),
            NOW
        ));
        assert!(!l.update(
            &queue(
                &[7],
                &[(1, End::Completed, NOW - 100), (2, End::Failed, NOW - 90)]
            ),
            NOW + 60
        ));
        let text = serde_json::to_string(&l).unwrap();
        let mut l: Ledger = serde_json::from_str(&text).unwrap();
        l.update(
            &queue(&[], &[(2, End::Failed, NOW - 90), (7, End::Withdrawn, NOW + 50)]),
            NOW + 60,
        );
        l.update(&queue(&[], &[]), NOW + 600);
        let counts = Ended {
            completed: 1,
            failed: 1,
            withdrawn: 1,
            unknown: 0,
        };
        assert_eq!(l.ended(NOW + 600), counts);
        assert_eq!(
            l.ended(NOW + 2 * 86_400),
            Ended {
                completed: 0,
                failed: 0,
                withdrawn: 0,
                unknown: 0
            }
        );
        assert_eq!(l.since, NOW);
    }

    #[test]
    fn a_job_that_is_requeued_and_ends_again_counts_again() {
        let mut l = Ledger::new(NOW);
        l.update(&queue(&[], &[(1, End::Failed, NOW)]), NOW);
        l.update(&queue(&[1], &[]), NOW + 60);
        l.update(&queue(&[], &[(1, End::Completed, NOW + 90)]), NOW + 120);
        let e = l.ended(NOW + 120);
        assert_eq!((e.completed, e.failed, e.unknown), (1, 1, 0));
    }

    #[test]
    fn an_end_that_nobody_saw_is_neither_success_nor_failure() {
        let mut l = Ledger::new(NOW);
        l.update(&queue(&[7, 8], &[]), NOW);
        l.update(&queue(&[8], &[]), NOW + 3600);
        assert_eq!(
            l.ended(NOW + 3600),
            Ended {
                completed: 0,
                failed: 0,
                withdrawn: 0,
                unknown: 1
            }
        );
        // Ended days ago: listed still, counted no more.
        l.update(&queue(&[8], &[(3, End::Completed, NOW - 90_000)]), NOW + 3600);
        assert_eq!(l.ended(NOW + 3600).completed, 0);
    }
}
