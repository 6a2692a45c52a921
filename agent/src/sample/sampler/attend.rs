//! One that reads no figures and is asked beside the others: what it does may hang as well.

use std::sync::Arc;
use std::time::Duration;

use super::slot::{PATIENCE, Slot};
use super::{Collector, Job, Sampler, Worker};
use crate::clock::instant;

impl Sampler {
    /// With such a one. It runs behind the others of each [`Sampler::sample`], and with [`Sampler::attend`].
    #[must_use]
    pub fn with_attendant(mut self, attendant: Box<dyn Collector>) -> Self {
        let slot = Slot {
            attends: true,
            ..Slot::new(attendant)
        };
        self.slots.push(slot);
        self
    }

    /// Has it run, without waiting for it; as soon as it is asked again where it is away.
    pub fn attend(&mut self) {
        self.gather();
        let now = instant();
        self.recall(now);
        self.leave_behind(now);
        let slots = self.slots.iter_mut().enumerate().filter(|(_, s)| s.attends);
        let jobs: Vec<Job> = slots.filter_map(|(i, s)| s.hand_over(i, now)).collect();
        self.soon = jobs.is_empty();
        self.dispatch(jobs);
    }

    /// Has it run with the next [`Sampler::plan`], [`Sampler::sample`] or [`Sampler::attended`].
    pub fn attend_soon(&mut self) {
        self.soon = true;
    }

    /// Whether it has come back from its last run.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.slots.iter().filter(|s| s.attends).all(|s| s.since.is_none())
    }

    /// Whether it is late: it may hang. One that waits its turn behind slow collectors is not.
    #[must_use]
    pub fn is_unattended(&self) -> bool {
        let now = instant();
        let running = self.worker.as_ref().and_then(Worker::running);
        let late = |at| now.saturating_duration_since(at) >= PATIENCE;
        let mut attendants = self.slots.iter().enumerate();
        attendants.any(|(i, s)| {
            let runs_late = running.is_some_and(|(r, at)| r == i && late(at));
            s.attends && s.since.is_some() && (s.left || runs_late)
        })
    }

    /// Waits, at most for `limit`, until it has done all that it was asked for; whether it has.
    pub async fn attended(&mut self, limit: Duration) -> bool {
        let end = instant().checked_add(limit).unwrap_or_else(instant);
        loop {
            self.gather();
            if self.is_attended() {
                let has_one = self.slots.iter().any(|s| s.attends);
                if !self.soon || !has_one {
                    return true;
                }
                self.attend();
            }
            let now = instant();
            if now >= end {
                return self.is_attended() && !self.soon;
            }
            self.leave_behind(now);
            let until = self.next_deadline(now).min(end);
            let outbox = Arc::clone(&self.outbox);
            tokio::time::timeout_at(until.into(), outbox.anybody()).await.ok();
        }
    }
}
