//! What operators decide about nodes while the daemon runs: who is disabled, which certificates are revoked, what
//! nodes are to be told. On disk, written by whoever holds the directory; in memory for every request. The daemon
//! looks for changes four times a second.

mod nudge;
mod rows;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use hpc_schema::id::{ClusterId, NodeId};
use tokio::sync::watch;

pub use nudge::{Nudges, nudge};
pub use rows::{Disabled, Version, disable, disabled, enable, touch, touch_files, version};

use crate::command::{self, CommandRow};
use crate::enrol;
use crate::store::{Store, StoreError};

type Key = (ClusterId, NodeId);

/// The decisions in force.
#[derive(Debug)]
pub struct Controls {
    inner: RwLock<Arc<Inner>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    version: Option<Version>,
    disabled: HashMap<Key, Arc<Disabled>>,
    revoked: HashSet<String>,
    commands: HashMap<Key, Arc<Vec<CommandRow>>>,
}

/// What [`Controls::refresh`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// Nothing new.
    Same,
    /// New decisions.
    Changed,
    /// Files have changed as well.
    Files,
}

impl Default for Controls {
    fn default() -> Self {
        Self {
            inner: RwLock::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Controls {
    fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads anew if something has changed since the last time.
    ///
    /// # Errors
    /// If the store fails; what was read before stays in force.
    pub async fn refresh(&self, store: &Store) -> Result<Refreshed, StoreError> {
        let now = version(store.reader()).await?;
        let before = self.inner().version;
        if before == Some(now) {
            return Ok(Refreshed::Same);
        }
        let disabled = disabled(store.reader()).await?;
        let mut commands: HashMap<Key, Vec<CommandRow>> = HashMap::new();
        for row in command::pending(store.reader()).await? {
            commands
                .entry((row.cluster_id.clone(), row.node_id.clone()))
                .or_default()
                .push(row);
        }
        let next = Inner {
            version: Some(now),
            disabled: disabled
                .into_iter()
                .map(|d| ((d.cluster_id.clone(), d.node_id.clone()), Arc::new(d)))
                .collect(),
            revoked: enrol::revoked_serials(store.reader()).await?,
            commands: commands.into_iter().map(|(k, v)| (k, Arc::new(v))).collect(),
        };
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
        Ok(match before {
            Some(before) if before.reload != now.reload => Refreshed::Files,
            _ => Refreshed::Changed,
        })
    }

    /// Moves whenever something that concerns open connections has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Why the node is disabled, if it is.
    #[must_use]
    pub fn disabled(&self, cluster: &ClusterId, node: &NodeId) -> Option<Arc<Disabled>> {
        let inner = self.inner();
        if inner.disabled.is_empty() {
            return None;
        }
        inner.disabled.get(&(cluster.clone(), node.clone())).cloned()
    }

    /// Whether the certificate of this serial number (lower-case hex) has been revoked.
    #[must_use]
    pub fn is_revoked(&self, serial: &str) -> bool {
        self.inner().revoked.contains(serial)
    }

    /// What the node has not been told, or not acknowledged.
    #[must_use]
    pub fn commands(&self, cluster: &ClusterId, node: &NodeId) -> Option<Arc<Vec<CommandRow>>> {
        let inner = self.inner();
        if inner.commands.is_empty() {
            return None;
        }
        inner.commands.get(&(cluster.clone(), node.clone())).cloned()
    }
}
