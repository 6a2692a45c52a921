//! Clusters that the chain has no more.

use std::collections::BTreeSet;

use hpc_chain::query::QueryError;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::RpcError;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;

use super::super::view::Registry;
use super::{CHUNK, Read, SyncError, all, take_in};
use crate::store::Store;

/// Whether the contract does not have the cluster that it was asked for.
pub(super) fn is_unknown(e: &QueryError) -> bool {
    let code = Some(Code::UnknownCluster);
    matches!(e, QueryError::Contract { code: said, .. } if *said == code)
}

/// An endpoint says that the chain does not have this cluster: its nodes leave memory and store, if that is so at a height at
/// which they should be there.
pub(super) async fn forget_nodes(
    client: &RegistryClient,
    db: &Store,
    registry: &Registry,
    cluster: &ClusterId,
    now_ms: u64,
) -> Result<(), SyncError> {
    let ids = all(registry, cluster, BTreeSet::new()).await;
    let heights = ids.iter().filter_map(|id| registry.node(cluster, id));
    let Some(height) = heights.map(|n| n.height).max() else {
        return Ok(());
    };
    // An endpoint that lags behind does not know younger clusters yet, and a refusal does not say its height.
    match client.from_height(height).cluster(cluster.clone()).await {
        Err(e) if is_unknown(&e) => {}
        Ok(_) => return Ok(()),
        Err(QueryError::Rpc(e @ RpcError::Behind { .. })) => {
            tracing::debug!(%cluster, error = %e, "whether the chain has a cluster is asked again at the next round");
            return Ok(());
        }
        Err(e) => return Err(e.into()),
    }
    let nodes = ids.len();
    tracing::warn!(%cluster, nodes, "the chain does not have this cluster any more; its nodes are forgotten");
    for asked in ids.chunks(CHUNK) {
        let read = Read {
            cluster,
            asked,
            nodes: Vec::new(),
            height,
        };
        take_in(db, registry, read, now_ms).await?;
    }
    Ok(())
}
