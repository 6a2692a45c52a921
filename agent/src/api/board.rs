//! What the agent's loop last knew, for whoever asks meanwhile: the loop may be waiting for the gateway.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hpc_schema::heartbeat::HealthStatus;

use crate::clock::instant;
use crate::config::Reserve;
use crate::health::Finding;
use crate::heartbeat::Held;
use crate::sample::Figures;

/// What the loop knew.
#[derive(Debug, Clone)]
pub struct View {
    /// Every figure with its age.
    pub figures: Figures,
    /// What tasks of ours hold.
    pub held: Held,
    /// What is never offered.
    pub reserve: Reserve,
    /// The CPUs of this node in Slurm, as it said last.
    pub slurm_cpus: Option<u32>,
    /// The node's judgement of itself.
    pub health: HealthStatus,
    /// Its reasons.
    pub findings: Vec<Finding>,
}

/// Where the loop puts it.
#[derive(Debug, Default)]
pub struct Board(Mutex<Option<(Instant, Arc<View>)>>);

impl Board {
    /// Replaces what was known.
    pub fn put(&self, view: View) {
        *self.lock() = Some((instant(), Arc::new(view)));
    }

    /// When it was put there, and what; none before the loop has measured.
    #[must_use]
    pub fn get(&self) -> Option<(Instant, Arc<View>)> {
        self.lock().clone()
    }

    /// No code of others runs under the lock.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Arc<View>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
