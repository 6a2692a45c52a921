use hpc_schema::command::{Acknowledgement, Command};
use hpc_schema::time::UnixSeconds;

use super::Gateway;
use super::answer::Failure;
use crate::command;
use crate::identity::PeerIdentity;
use crate::store::StoreError;

/// Takes what a node says of its orders; durable when this returns.
pub(super) async fn acknowledge(
    gateway: &Gateway,
    peer: &PeerIdentity,
    acks: &[Acknowledgement],
    now_ms: u64,
) -> Result<(), Failure> {
    if acks.is_empty() {
        return Ok(());
    }
    let (cluster, node, now) = (&peer.cluster_id, &peer.node_id, UnixSeconds(now_ms / 1000));
    let mut tx = gateway.store.begin().await?;
    let mut taken = false;
    for ack in acks {
        let known = command::acknowledge(&mut tx, cluster, node, ack, now).await?;
        taken |= known;
        if known {
            tracing::info!(%cluster, %node, command = %ack.command_id, status = ack.status.as_str(), "order acknowledged");
        } else {
            tracing::debug!(%cluster, %node, command = %ack.command_id, "acknowledgement of no order that waits for one");
        }
    }
    tx.commit().await.map_err(StoreError::from)?;
    if taken {
        // At once: the answer to this very heartbeat must not tell the order again.
        gateway.controls.refresh(&gateway.store).await?;
    }
    Ok(())
}

/// The signed orders that the node has not acknowledged. A disabled node gets none.
pub(super) async fn told(gateway: &Gateway, peer: &PeerIdentity, now: UnixSeconds) -> Vec<Command> {
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    let Some(rows) = gateway.controls.commands(cluster, node) else {
        return Vec::new();
    };
    if gateway.controls.disabled(cluster, node).is_some() {
        return Vec::new();
    }
    let key = match gateway.tasks.get(cluster) {
        Ok(Some(key)) => key,
        Ok(None) => {
            tracing::warn!(%cluster, "an order cannot be signed: the cluster has no task key here");
            return Vec::new();
        }
        Err(e) => {
            tracing::error!(%cluster, error = %e, "an order cannot be signed");
            return Vec::new();
        }
    };
    let registry = &gateway.registry;
    let commands = command::signed(&rows, registry.chain_id(), registry.contract(), &key, now);
    for row in rows.iter().filter(|r| r.told_at.is_none()) {
        // For the record only; the order is told all the same.
        if let Err(e) = note_told(gateway, &row.command_id, now).await {
            tracing::warn!(command = %row.command_id, error = %e, "it is not on record that the order was told");
        }
    }
    commands
}

async fn note_told(gateway: &Gateway, id: &str, now: UnixSeconds) -> Result<(), StoreError> {
    let mut tx = gateway.store.begin().await?;
    command::told(&mut tx, id, now).await?;
    tx.commit().await?;
    Ok(())
}
