//! A task that is submitted where its node waits: it goes on record as the node's, and is given to it with that commit
//! instead of after another one.

use std::sync::Arc;

use hpc_schema::task::{KeyRotation, WaitAnswer};

use super::{Gateway, certificate, task_key};
use crate::clock;
use crate::identity::Seed;
use crate::store::StoreError;
use crate::task::{self, Claimed, TaskRow};

/// A task that is handed over.
#[derive(Debug)]
pub struct HandOver {
    gateway: Arc<Gateway>,
    key: Arc<Seed>,
    rotations: Vec<KeyRotation>,
    lease_seconds: u32,
    row: TaskRow,
}

impl HandOver {
    /// Makes a task that is not on record yet its node's until the lease is over; none, and nothing is changed, if the node
    /// does not wait here, may have no task, or the cluster has no key here. No other task of the node may be open.
    #[must_use]
    pub fn of(gateway: Arc<Gateway>, row: &mut TaskRow, rotations: Vec<KeyRotation>) -> Option<Self> {
        let (cluster, node) = (&row.cluster_id, &row.node_id);
        if !gateway.waiting.waits(cluster, node) {
            return None;
        }
        let known = gateway.registry.node(cluster, node);
        certificate::may_have_one(&gateway, known.as_deref()).ok()?;
        let key = task_key::counting(&gateway, cluster, &rotations).ok()??;
        let lease = gateway.config.tasks.lease.duration();
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        row.dispatch(clock::now_ms(), lease_ms);
        Some(Self {
            gateway,
            key,
            rotations,
            lease_seconds: u32::try_from(lease.as_secs()).unwrap_or(u32::MAX),
            row: row.clone(),
        })
    }

    /// What the node is told.
    #[must_use]
    pub fn sign(&self) -> WaitAnswer {
        let registry = &self.gateway.registry;
        let claimed = Claimed {
            tasks: vec![self.row.clone()],
            cancel: Vec::new(),
        };
        let scope = (registry.chain_id(), registry.contract());
        task::answer(
            &claimed,
            self.rotations.clone(),
            scope,
            &self.key,
            self.lease_seconds,
        )
    }

    /// Gives it, now that it is on record. Where nobody waits any more, the next who asks gets it.
    pub async fn give(self, answer: WaitAnswer) {
        let (gateway, row) = (&self.gateway, &self.row);
        let (cluster, node) = (&row.cluster_id, &row.node_id);
        if gateway.waiting.give(cluster, node, answer) {
            tracing::info!(%cluster, %node, task = %row.task_id, kind = %row.kind, attempt = row.attempts, "task delivered");
        } else if let Err(e) = self.end_lease().await {
            tracing::warn!(%cluster, %node, task = %row.task_id, error = %e, "the node went; it has the task when the lease is over");
        } else {
            gateway.waiting.wake(cluster, node);
        }
        gateway.waiting.tell(cluster, &row.task_id);
    }

    async fn end_lease(&self) -> Result<(), StoreError> {
        let mut tx = self.gateway.store.begin().await?;
        task::end_lease(&mut tx, &self.row.cluster_id, &self.row.task_id, clock::now_ms()).await?;
        Ok(tx.commit().await?)
    }
}
