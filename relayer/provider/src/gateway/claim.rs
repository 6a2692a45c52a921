//! What waits for a node: claimed, put into the audit log and signed, on two ways to the store.

use std::time::Instant;

use hpc_schema::task::WaitAnswer;

use super::Gateway;
use super::answer::Failure;
use super::task_key;
use crate::identity::PeerIdentity;
use crate::store::StoreError;
use crate::{audit, clock, db, task};

/// What there is for the node; none if nothing is. It is on record as the node's before anybody has it.
pub(super) async fn claim(gateway: &Gateway, peer: &PeerIdentity) -> Result<Option<WaitAnswer>, Failure> {
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    let limits = &gateway.config.tasks;
    let lease = limits.lease.duration();
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let asked = Instant::now();
    let [tasks, cancelled] = task::ask_claim((cluster, node), limits.per_node, lease_ms, clock::now_ms());
    let questions = vec![tasks, cancelled, task::ask_rotations(cluster), audit::ask_head()];
    let (tx, told) = gateway.store.begin_together(questions).await?;
    let [tasks, cancelled, rotations, head] = db::each(told).map_err(StoreError::from)?;
    let claimed = task::told_claim(&tasks, &cancelled)?;
    if claimed.is_empty() {
        tx.rollback().await.map_err(StoreError::from)?;
        return Ok(None);
    }
    let rotations = task::told_rotations(&rotations)?;
    let key = match task_key::counting(gateway, cluster, &rotations) {
        Ok(Some(key)) => key,
        not => {
            tx.rollback().await.map_err(StoreError::from)?;
            not?;
            tracing::warn!(%cluster, "a task cannot be signed: the cluster has no task key here");
            return Err(Failure::unavailable(60, "the cluster has no task key here"));
        }
    };
    let decided = claimed.tasks.iter().filter(|row| !row.scheduled);
    let entries: Vec<_> = decided.map(task::dispatched).collect();
    let registry = &gateway.registry;
    let scope = (registry.chain_id(), registry.contract());
    // The lease began when it was asked for, and the store may have been waited for.
    let left = lease.saturating_sub(asked.elapsed());
    let seconds = u32::try_from(left.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    let last = audit::after(audit::told_head(&head)?, &entries);
    // Signed while the disk works, and given out afterwards.
    let (kept, answer) = tokio::join!(tx.commit_together(last), async {
        task::answer(&claimed, rotations, scope, &key, seconds)
    });
    kept.map_err(StoreError::from)?;
    for row in &claimed.tasks {
        tracing::info!(%cluster, %node, task = %row.task_id, kind = %row.kind, attempt = row.attempts, "task delivered");
        gateway.waiting.tell(cluster, &row.task_id);
    }
    Ok(Some(answer))
}
