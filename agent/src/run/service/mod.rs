//! The node goes out of service by policy, and back by proof; Slurm is told.

mod step;

use std::time::Instant;

use tokio::sync::mpsc;

use crate::command::End;
use crate::health::{OutOfService, Watch};
use crate::state::{ServiceRecord, StateDir};

/// Whether this node is in service, and what Slurm knows of it.
#[derive(Debug)]
pub(in crate::run) struct Service {
    record: ServiceRecord,
    /// The disk does not hold it: it is tried again then.
    save_at: Option<Instant>,
    watch: Watch,
    /// Slurm has been told of the present state by this process.
    told: bool,
    /// When it was: what was measured before says nothing of it.
    told_at: Option<Instant>,
    /// A thread tells it that the node is out of service, or back.
    telling: Option<bool>,
    again_at: Option<Instant>,
    ends: mpsc::Sender<End>,
    ended: mpsc::Receiver<End>,
}

impl Service {
    /// As kept. A record that cannot be read counts as lost: the findings are still there to see.
    pub(in crate::run) fn open(state: &StateDir) -> Self {
        let record = ServiceRecord::load(state).unwrap_or_else(|e| {
            tracing::error!("whether this node was out of service is lost: {e}");
            ServiceRecord::default()
        });
        let (ends, ended) = mpsc::channel(1);
        Self {
            save_at: None,
            // A node in service with nothing in Slurm has nothing to tell; what Slurm has shown once is not told again,
            // or a restart would undo what an administrator did there.
            told: match record.out {
                Some(_) => record.shown,
                None => !record.in_slurm,
            },
            told_at: None,
            record,
            watch: Watch::default(),
            telling: None,
            again_at: None,
            ends,
            ended,
        }
    }

    /// Why it is out of service.
    pub(in crate::run) fn out(&self) -> Option<&OutOfService> {
        self.record.out.as_ref()
    }

    /// How telling Slurm ended.
    pub(in crate::run) async fn ended(&mut self) -> Option<End> {
        self.ended.recv().await
    }

    /// Whether a thread talks to Slurm: orders wait, so that each knows of the other's end.
    pub(in crate::run) fn talks(&self) -> bool {
        self.telling.is_some()
    }

    /// When Slurm is told again.
    pub(in crate::run) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }
}
