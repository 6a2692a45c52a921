//! What is on record of a node: for who registers, and for who has lost its disk.

use hpc_schema::gateway::RegistrationRecord;
use hpc_schema::registry::Params;
use hpc_schema::task::KeyRotation;

use super::answer::Failure;
use super::{Gateway, task_key};
use crate::registry::Node;
use crate::store::StoreError;
use crate::{enrol, spool};

/// The present registration of `node`, with the rotations that led to its task key; none while its cluster is not known
/// here.
pub(super) async fn record(
    gateway: &Gateway,
    node: &Node,
) -> Result<Option<(RegistrationRecord, Vec<KeyRotation>)>, Failure> {
    let (cluster_id, node_id) = (&node.cluster_id, &node.node_id);
    let registry = &gateway.registry;
    let Some(cluster) = registry.cluster(cluster_id) else {
        return Ok(None);
    };
    let intake = spool::intake_of(gateway.store.reader(), cluster_id, node_id).await?;
    // Each registration counts anew.
    let acked = intake
        .filter(|i| i.epoch == node.chain.epoch)
        .map_or(0, |i| i.acked_sequence);
    let mut conn = gateway.store.reader().acquire().await.map_err(StoreError::from)?;
    let key = task_key::of(gateway, &mut conn, cluster_id).await.ok().flatten();
    drop(conn);
    let (here, task_keys) = key.map_or((None, Vec::new()), |(key, steps)| (Some(*key.public()), steps));
    let hardware_fingerprint =
        enrol::hardware(gateway.store.reader(), cluster_id, node_id, node.chain.epoch).await?;
    let record = RegistrationRecord {
        cluster_id: cluster_id.clone(),
        node_id: node_id.clone(),
        provider_address: cluster.owner.clone(),
        chain_id: registry.chain_id().to_owned(),
        contract: registry.contract().to_owned(),
        epoch: node.chain.epoch,
        last_sequence: acked.max(node.floor()),
        params: Params::clone(&registry.params()),
        job_ids: cluster.job_ids,
        task_public_key: here.or(cluster.task_public_key),
        hardware_fingerprint,
    };
    Ok(Some((record, task_keys)))
}
