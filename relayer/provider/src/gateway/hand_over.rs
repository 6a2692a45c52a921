//! A task that is submitted where its node waits: it goes on record as the node's, and is given to it with that commit
//! instead of after another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hpc_schema::task::{KeyRotation, WaitAnswer, audit_target};

use super::{Gateway, certificate, task_key};
use crate::identity::Seed;
use crate::store::StoreError;
use crate::task::{self, Claimed, TaskRow};
use crate::{audit, clock};

/// A task that is handed over.
#[derive(Debug)]
pub struct HandOver {
    gateway: Arc<Gateway>,
    key: Arc<Seed>,
    rotations: Vec<KeyRotation>,
    lease: Duration,
    began: Instant,
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
            lease,
            began: Instant::now(),
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
        let rotations = self.rotations.clone();
        task::answer(&claimed, rotations, scope, &self.key, self.left())
    }

    /// Seconds of the lease.
    fn left(&self) -> u32 {
        let left = self.lease.saturating_sub(self.began.elapsed());
        u32::try_from(left.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
    }

    /// Gives it, now that it is on record. Where nobody waits any more, the next who asks gets it.
    pub async fn give(self, mut answer: WaitAnswer) {
        let (gateway, row) = (&self.gateway, &self.row);
        let (cluster, node) = (&row.cluster_id, &row.node_id);
        // The lease began before it was on record.
        let left = self.left();
        answer.tasks.iter_mut().for_each(|t| t.lease_seconds = left);
        if gateway.waiting.give(cluster, node, answer).await {
            tracing::info!(%cluster, %node, task = %row.task_id, kind = %row.kind, attempt = row.attempts, "task delivered");
        } else {
            self.take_back().await;
        }
        gateway.waiting.tell(cluster, &row.task_id);
    }

    /// Nobody has it: it is in the queue again, if it is on record.
    pub async fn take_back(&self) {
        let TaskRow {
            cluster_id: cluster,
            node_id: node,
            task_id: task,
            ..
        } = &self.row;
        match self.queue_again().await {
            Ok(_) => drop(self.gateway.waiting.wake(cluster, node)),
            Err(e) => {
                tracing::warn!(%cluster, %node, %task, error = %e, "a task that nobody took waits until its lease is over");
            }
        }
    }

    async fn queue_again(&self) -> Result<(), StoreError> {
        let mut tx = self.gateway.store.begin().await?;
        let (cluster, task) = (&self.row.cluster_id, &self.row.task_id);
        if task::give_back(&mut tx, cluster, task).await? && !self.row.scheduled {
            let target = audit_target(cluster, &self.row.node_id, task);
            let why =
                serde_json::json!({ "message": "the node no longer waited; the task is in the queue again" });
            let entry = audit::Entry::of_daemon("task.dispatch", target, "failed", why);
            audit::append(&mut tx, &entry).await?;
        }
        Ok(tx.commit().await?)
    }
}
