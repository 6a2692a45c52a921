//! What operators decide about nodes while the daemon runs: who is disabled, which certificates are revoked, what
//! nodes are to be told. On disk, written by whoever holds the directory; in memory for every request. The daemon
//! looks for changes four times a second.

mod nudge;
mod rows;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hpc_schema::id::{ClusterId, NodeId};
use tokio::sync::watch;

pub use nudge::{Nudge, Nudges, nudge, nudge_node};
pub use rows::{Disabled, Version, disable, disabled, disabled_in, enable, touch, touch_files, version};

use crate::command::{self, CommandRow};
use crate::enrol;
use crate::identity::PeerIdentity;
use crate::store::{Store, StoreError};

type Key = (ClusterId, NodeId);

/// The decisions in force.
#[derive(Debug)]
pub struct Controls {
    inner: RwLock<Arc<Inner>>,
    /// Apart, for a node that acknowledges changes its own alone.
    commands: RwLock<HashMap<Key, Arc<Vec<CommandRow>>>>,
    revoked: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    version: Option<Version>,
    disabled: HashMap<Key, Arc<Disabled>>,
    revoked: HashSet<String>,
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
            commands: RwLock::default(),
            revoked: watch::Sender::new(0),
        }
    }
}

impl Controls {
    fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.look())
    }

    /// For a look that is over at once.
    fn look(&self) -> RwLockReadGuard<'_, Arc<Inner>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
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
            revoked: enrol::revoked_fingerprints(store.reader()).await?,
        };
        let revoked_more = !next.revoked.is_subset(&self.inner().revoked);
        // Both at once: whoever reads one node's anew looks whether all were meanwhile.
        let mut orders = self.orders_mut();
        *orders = commands.into_iter().map(|(k, v)| (k, Arc::new(v))).collect();
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        drop(orders);
        // Each of thousands of connections wakes up for this, so not for other decisions.
        if revoked_more {
            self.revoked.send_modify(|n| *n = n.wrapping_add(1));
        }
        Ok(match before {
            Some(before) if before.reload != now.reload => Refreshed::Files,
            _ => Refreshed::Changed,
        })
    }

    /// Reads anew what one node is to be told: it has acknowledged, and so do thousands beside it.
    ///
    /// # Errors
    /// If the store fails; what was read before stays in force.
    pub async fn reread(&self, store: &Store, cluster: &ClusterId, node: &NodeId) -> Result<(), StoreError> {
        let before = self.inner().version;
        let rows = command::pending_of(store.reader(), cluster, node).await?;
        let key = (cluster.clone(), node.clone());
        let mut commands = self.orders_mut();
        if self.inner().version != before {
            // What was read of all is newer, or is read again in a moment.
            return Ok(());
        }
        if rows.is_empty() {
            commands.remove(&key);
        } else {
            commands.insert(key, Arc::new(rows));
        }
        Ok(())
    }

    fn orders_mut(&self) -> RwLockWriteGuard<'_, HashMap<Key, Arc<Vec<CommandRow>>>> {
        self.commands.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves whenever more certificates have been revoked.
    #[must_use]
    pub fn revocations(&self) -> watch::Receiver<u64> {
        self.revoked.subscribe()
    }

    /// Why the node is disabled, if it is.
    #[must_use]
    pub fn disabled(&self, cluster: &ClusterId, node: &NodeId) -> Option<Arc<Disabled>> {
        let inner = self.look();
        if inner.disabled.is_empty() {
            return None;
        }
        inner.disabled.get(&(cluster.clone(), node.clone())).cloned()
    }

    /// Whether this certificate has been revoked.
    #[must_use]
    pub fn is_revoked(&self, peer: &PeerIdentity) -> bool {
        let inner = self.look();
        // One of before fingerprints were kept is on record by its serial number, DER's zero byte included.
        !inner.revoked.is_empty()
            && (inner.revoked.contains(&peer.fingerprint)
                || inner.revoked.contains(&peer.serial)
                || inner.revoked.contains(&peer.der_serial()))
    }

    /// Ends when this certificate is revoked after `revocations` was taken. A request gets to know why; an idle connection
    /// just ends.
    pub async fn revokes(&self, peer: &PeerIdentity, mut revocations: watch::Receiver<u64>) {
        loop {
            if revocations.changed().await.is_err() {
                return std::future::pending().await;
            }
            if self.is_revoked(peer) {
                tracing::info!(cluster = %peer.cluster_id, node = %peer.node_id, serial = %peer.serial,
                    "a connection with a revoked certificate is closed");
                return;
            }
        }
    }

    /// What the node has not been told, or not acknowledged.
    #[must_use]
    pub fn commands(&self, cluster: &ClusterId, node: &NodeId) -> Option<Arc<Vec<CommandRow>>> {
        let commands = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        if commands.is_empty() {
            return None;
        }
        commands.get(&(cluster.clone(), node.clone())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hpc_schema::time::UnixSeconds;
    use tokio::time::timeout;

    use super::*;
    use crate::clock;
    use crate::enrol::{Which, record_outside, revoke_certificates};

    #[tokio::test]
    async fn what_is_revoked_before_a_connection_first_waits_ends_it_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let controls = Controls::default();
        let now = clock::now();
        let peer = PeerIdentity {
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            node_id: "node-0001".parse().unwrap(),
            epoch: Some(1),
            serial: "ab".into(),
            fingerprint: "cd".into(),
            issuer: "CN=Site".into(),
            not_before: now,
            not_after: UnixSeconds(now.0 + 60),
        };
        record_outside(&store, &peer, now).await.unwrap();
        controls.refresh(&store).await.unwrap();
        let handshake = controls.revocations();
        let mut tx = store.begin().await.unwrap();
        let which = Which::Fingerprint(&peer.fingerprint);
        assert_eq!(revoke_certificates(&mut tx, which, now).await.unwrap(), 1);
        tx.commit().await.unwrap();
        assert_eq!(controls.refresh(&store).await.unwrap(), Refreshed::Changed);
        let soon = Duration::from_secs(5);
        timeout(soon, controls.revokes(&peer, handshake)).await.unwrap();
        // One that comes with it later asks, and is told why.
        let later = controls.revocations();
        assert!(controls.is_revoked(&peer));
        assert!(
            timeout(Duration::from_millis(50), controls.revokes(&peer, later))
                .await
                .is_err()
        );
    }
}
