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
        certificate::may_have_one(&gateway, known.as_deref(), false).ok()?;
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
        // What is left of the lease is known when it is given, and is not signed.
        task::answer(&claimed, rotations, scope, &self.key, 0)
    }

    /// Gives it, now that it is on record. Where nobody waits any more, the next who asks gets it: true if it is in the queue
    /// again.
    pub async fn give(self, mut answer: WaitAnswer) -> bool {
        let (gateway, row) = (&self.gateway, &self.row);
        let (cluster, node) = (&row.cluster_id, &row.node_id);
        // The lease began before it was on record.
        let left = self.lease.saturating_sub(self.began.elapsed());
        let left = u32::try_from(left.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        answer.tasks.iter_mut().for_each(|t| t.lease_seconds = left);
        let has_it = gateway.waiting.give(cluster, node, answer).await;
        if has_it {
            tracing::info!(%cluster, %node, task = %row.task_id, kind = %row.kind, attempt = row.attempts, "task delivered");
        }
        let queued = !has_it && self.take_back().await;
        gateway.waiting.tell(cluster, &row.task_id);
        queued
    }

    /// Nobody has it: it is in the queue again, if it is on record and no node has had it since. Whether it is.
    pub async fn take_back(&self) -> bool {
        let TaskRow {
            cluster_id: cluster,
            node_id: node,
            task_id: task,
            ..
        } = &self.row;
        match self.queue_again().await {
            Ok(queued) => {
                self.gateway.waiting.wake(cluster, node);
                queued
            }
            Err(e) => {
                tracing::warn!(%cluster, %node, %task, error = %e, "a task that nobody took waits until its lease is over");
                false
            }
        }
    }

    async fn queue_again(&self) -> Result<bool, StoreError> {
        let mut tx = self.gateway.store.begin().await?;
        let (cluster, task) = (&self.row.cluster_id, &self.row.task_id);
        let queued = task::give_back(&mut tx, cluster, task).await?;
        if queued && !self.row.scheduled {
            let target = audit_target(cluster, &self.row.node_id, task);
            let why =
                serde_json::json!({ "message": "the node no longer waited; the task is in the queue again" });
            let entry = audit::Entry::of_daemon("task.dispatch", target, "failed", why);
            audit::append(&mut tx, &entry).await?;
        }
        tx.commit().await?;
        Ok(queued)
    }
}
