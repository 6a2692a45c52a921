use std::time::{Duration, Instant};

use crate::sample::worker::Job;
use crate::sample::{Category, Collector};

/// A collector that takes longer may be slow or stuck; either way the others do not wait for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How far a collector is in a round that begins by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planned {
    /// It is in none.
    No,
    /// It waits for its time, or has begun without anybody's knowing yet.
    Waits,
    /// It has begun.
    Begun,
}

/// A collector's place.
pub(super) struct Slot {
    pub(super) name: &'static str,
    pub(super) category: Category,
    pub(super) deadline: Duration,
    /// Absent while it runs: single flight.
    pub(super) collector: Option<Box<dyn Collector>>,
    /// When it was handed to a worker, while it runs.
    pub(super) since: Option<Instant>,
    /// Left behind with its thread, so that others need not wait.
    pub(super) left: bool,
    /// Its deadline has passed, and it was said.
    pub(super) said: bool,
    pub(super) last: Option<Instant>,
    /// Until it comes back.
    pub(super) planned: Planned,
    /// Measures nothing: it runs behind others that are asked, and when it is told to.
    pub(super) attends: bool,
}

impl Slot {
    pub(super) fn new(collector: Box<dyn Collector>) -> Self {
        Self {
            name: collector.name(),
            category: collector.category(),
            deadline: collector.deadline(),
            collector: Some(collector),
            since: None,
            left: false,
            said: false,
            last: None,
            planned: Planned::No,
            attends: false,
        }
    }

    /// Handed over, if it is there.
    pub(super) fn hand_over(&mut self, index: usize, now: Instant) -> Option<Job> {
        self.last = Some(now);
        let job = self.job(index)?;
        self.since = Some(now);
        Some(job)
    }

    fn job(&mut self, index: usize) -> Option<Job> {
        Some(Job {
            index,
            collector: self.collector.take()?,
            attends: self.attends,
        })
    }

    /// Handed over for a round that begins later, if it is there.
    pub(super) fn plan(&mut self, index: usize) -> Option<Job> {
        let job = self.job(index)?;
        self.planned = Planned::Waits;
        Some(job)
    }

    /// After this the others get another thread.
    pub(super) fn patience(&self) -> Duration {
        self.deadline.min(PATIENCE)
    }

    /// Whether it is worth waiting for.
    pub(super) fn is_expected(&self) -> bool {
        self.planned != Planned::No && !self.left
    }

    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.left
            && self
                .since
                .is_some_and(|since| now.saturating_duration_since(since) >= self.deadline)
    }
}
