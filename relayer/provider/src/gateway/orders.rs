use std::sync::Arc;

use hpc_schema::command::{Acknowledgement, Command};
use hpc_schema::id::ClusterId;
use hpc_schema::task::KeyRotation;
use hpc_schema::time::UnixSeconds;

use super::answer::Failure;
use super::{Gateway, task_key};
use crate::command::{self, CommandRow};
use crate::identity::{PeerIdentity, Seed};
use crate::store::StoreError;

/// Takes what a node says of its orders; durable when this returns.
pub(super) async fn acknowledge(
    gateway: &Gateway,
    peer: &PeerIdentity,
    acks: &[Acknowledgement],
    now_ms: u64,
) -> Result<(), Failure> {
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
        gateway.controls.reread(&gateway.store, cluster, node).await?;
    }
    Ok(())
}

/// What a node is ordered.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Signed.
    pub(super) commands: Vec<Command>,
    /// How the key that signed came to be, if there are any.
    pub(super) task_keys: Vec<KeyRotation>,
}

/// These orders, which the node has not acknowledged, signed. A disabled node gets none.
pub(super) async fn told(
    gateway: &Gateway,
    peer: &PeerIdentity,
    rows: &[CommandRow],
    now: UnixSeconds,
) -> Told {
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    if gateway.controls.disabled(cluster, node).is_some() {
        return Told::default();
    }
    let (key, task_keys) = match key_of(gateway, cluster).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            tracing::warn!(%cluster, "an order cannot be signed: the cluster has no task key here");
            return Told::default();
        }
        // It was said where it failed.
        Err(_) => return Told::default(),
    };
    let registry = &gateway.registry;
    let commands = command::signed(rows, registry.chain_id(), registry.contract(), &key, now);
    for row in rows.iter().filter(|r| r.told_at.is_none()) {
        // For the record only; the order is told all the same.
        if let Err(e) = note_told(gateway, &row.command_id, now).await {
            tracing::warn!(command = %row.command_id, error = %e, "it is not on record that the order was told");
        }
    }
    Told { commands, task_keys }
}

async fn key_of(
    gateway: &Gateway,
    cluster: &ClusterId,
) -> Result<Option<(Arc<Seed>, Vec<KeyRotation>)>, Failure> {
    let mut conn = gateway.store.reader().acquire().await.map_err(StoreError::from)?;
    task_key::of(gateway, &mut conn, cluster).await
}

async fn note_told(gateway: &Gateway, id: &str, now: UnixSeconds) -> Result<(), StoreError> {
    let mut tx = gateway.store.begin().await?;
    command::told(&mut tx, id, now).await?;
    tx.commit().await?;
    Ok(())
}
