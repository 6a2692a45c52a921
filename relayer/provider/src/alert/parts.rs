use std::sync::Arc;

use super::standing::Standing;
use crate::config::Alerts;
use crate::home::Home;
use crate::ops::{Health, Metrics};
use crate::registry::Registry;
use crate::store::Store;

/// What alerts need.
#[derive(Debug, Clone)]
pub struct Parts {
    /// As configured.
    pub config: Alerts,
    /// The daemon's directory.
    pub home: Home,
    /// The database.
    pub store: Store,
    /// The chain in memory.
    pub registry: Arc<Registry>,
    /// Troubles.
    pub health: Arc<Health>,
    /// Gauges.
    pub metrics: Arc<Metrics>,
    /// This gateway's name among those that share the store; none: it is alone.
    pub instance: Option<String>,
    /// What Alertmanagers were told last.
    pub standing: Standing,
}

impl Parts {
    pub(super) fn wait_ms(&self) -> u64 {
        u64::try_from(self.config.group_wait.duration().as_millis()).unwrap_or(u64::MAX)
    }
}
