//! What lies in the state directory, as the loop sees it: it waits for no disk longer than it must.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde::Serialize;

use super::Agent;
use crate::clock::instant;
use crate::files::FileError;
use crate::sequence::{Reserved, SequenceError};

/// A heartbeat waits so long for its number, and for the disk to hold what Slurm said; what is slower is there for the next one.
const RESERVED: Duration = Duration::from_secs(1);

impl Agent {
    /// Has it written when the loop comes to rest, without waiting for the disk.
    pub(super) fn save_status(&mut self) {
        self.status.stuck_collectors = self.stuck().into_iter().map(str::to_owned).collect();
        self.status.metrics_retention_seconds = Some(self.config.sampling.metrics_retention.as_secs());
        self.keeper.status(&self.status);
        self.sampler.attend_soon();
    }

    /// Whether the state directory answers: what would wait for it is better not begun.
    pub(super) fn keeps(&mut self) -> bool {
        self.sampler.gather();
        !self.sampler.is_unattended()
    }

    /// Writes `what` (a name, and what makes it different from the last time) into the state directory, where it must be
    /// before the loop goes on. Where the disk is slow, the next call for the same hears how it ended.
    ///
    /// # Errors
    /// Why it is not there, or not known to be.
    pub(super) fn keep_now(
        &mut self,
        what: (&'static str, &impl Serialize),
        write: impl FnOnce() -> Result<(), FileError> + Send + 'static,
    ) -> Result<(), String> {
        let mut hash = DefaultHasher::new();
        what.0.hash(&mut hash);
        let version = serde_json::to_vec(what.1).map_err(|e| e.to_string())?;
        version.hash(&mut hash);
        let done = if self.keeps() {
            self.disk.ask(hash.finish(), write)
        } else {
            None
        };
        done.ok_or_else(|| "the state directory does not answer".to_owned())?
            .map_err(|e| e.to_string())
    }

    /// What came of what was written.
    pub(super) fn kept(&mut self) {
        self.resample();
        self.sampler.gather();
        let kept = self.keeper.take();
        if let Some(wish) = kept.wish {
            self.wish = Some(wish);
        }
        if let Some(end) = kept.block {
            self.block_ended(end);
        }
        if kept.anew.is_some() {
            self.anew = kept.anew;
        }
        self.take_anew();
        if let Some(known) = kept.known {
            self.take_known(&known);
        }
        if let Some(found) = kept.found {
            self.take_found(found);
        }
        self.say_kept("ca", "the CA file", kept.ca);
        self.say_kept("certificate", "the certificate in use", kept.certificate);
        self.say_kept("registration", "what the gateway has changed", kept.registration);
        self.say_kept("report", "the report of a diagnostic", kept.reports);
        self.say_kept("status", "status", kept.status);
        self.say_kept("history", "what was sampled", kept.samples);
        self.say_kept("slurm", "what Slurm said last", kept.slurm);
    }

    /// Has the next block of sequence numbers reserved where the present one is used up: at the start, and after a disk has
    /// failed for long. Another thread waits for the disk.
    pub(super) async fn reserve_numbers(&mut self) {
        if !self.sequence.is_used_up() || self.leaves {
            return;
        }
        self.ask_for_numbers();
        self.sampler.attend();
        self.sampler.attended(RESERVED).await;
        if let Some(end) = self.keeper.take_block() {
            self.block_ended(end);
        }
    }

    /// Has what Slurm said last on the disk before a heartbeat tells it: the chain must know of no drain that the next start
    /// does not.
    pub(super) async fn slurm_kept(&mut self) {
        self.slurm_kept_within(RESERVED).await;
    }

    async fn slurm_kept_within(&mut self, limit: Duration) {
        let end = instant().checked_add(limit).unwrap_or_else(instant);
        self.keep_slurm();
        while !self.leaves && self.keeper.slurm_waits() && self.keeps() {
            let left = end.saturating_duration_since(instant());
            if left.is_zero() {
                return;
            }
            let attended = self.sampler.attended(left).await;
            // It may have said more meanwhile: that is waited for as well. What the disk has refused is not.
            if !self.keep_slurm() && attended {
                return;
            }
        }
    }

    /// Has the next block of sequence numbers reserved, if it is time.
    pub(super) fn ask_for_numbers(&mut self) {
        if let Some(block) = self.sequence.reservation() {
            self.keeper.block(block);
        }
    }

    fn block_ended(&mut self, end: Result<Reserved, SequenceError>) {
        match self.sequence.reserved(end) {
            Ok(()) => self.over("sequence", "sequence numbers can be reserved again"),
            Err(e) => self.warn_once(
                "sequence",
                &format!("no further sequence numbers can be reserved yet: {e}"),
            ),
        }
    }

    /// How keeping `what` ended, if it did.
    fn say_kept(&mut self, kind: &'static str, what: &str, kept: Option<Result<(), FileError>>) {
        match kept {
            Some(Ok(())) => self.over(kind, &format!("{what} is kept again")),
            Some(Err(e)) => self.warn_once(kind, &format!("{what} is not kept yet: {e}")),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use hpc_schema::heartbeat::SlurmState;

    use super::super::scene::registered;
    use super::*;
    use crate::probe::slurm::{Answer, LastWord, SlurmNode};
    use crate::sample::{Category, Collector, Reading, Sampler};

    /// A look at Slurm that takes until it is told what it brings, and is waited for; later ones bring nothing.
    struct Look(mpsc::Receiver<Reading>);
    impl Collector for Look {
        fn name(&self) -> &'static str {
            "slurm"
        }
        fn category(&self) -> Category {
            Category::Capacity
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            self.0.recv().into_iter().collect()
        }
    }

    fn drained() -> Reading {
        Reading::Slurm(Answer::Said(SlurmNode {
            state: SlurmState::Drain,
            state_text: "IDLE+DRAIN".into(),
            reason: Some("bad disk".into()),
            ..SlurmNode::idle()
        }))
    }

    #[tokio::test]
    async fn what_slurm_says_while_the_disk_is_waited_for_is_kept_as_well() {
        let (_dir, mut agent) = registered();
        let state = agent.state.clone();
        let (says, look) = mpsc::channel();
        let writer = agent.keeper.attendant(&agent.state, &agent.config.sampling);
        // What writes to the disk waits behind the look.
        agent.sampler = Sampler::new(Vec::new())
            .with_attendant(Box::new(Look(look)))
            .with_attendant(writer);
        {
            let mut keeping = std::pin::pin!(agent.slurm_kept_within(Duration::from_secs(60)));
            tokio::select! {
                biased;
                () = &mut keeping => panic!("nothing is on the disk yet"),
                () = std::future::ready(()) => {}
            }
            says.send(drained()).unwrap();
            drop(says);
            keeping.await;
        }
        assert!(agent.sampler.figures().drained.is_some());
        assert!(!agent.keeper.slurm_waits(), "what it said is not kept");
        let kept = LastWord::remembered(&state.slurm(), &agent.config.slurm);
        assert_eq!(kept.drained, agent.sampler.figures().drained);
    }
}
