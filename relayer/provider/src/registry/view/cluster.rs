use std::collections::BTreeSet;
use std::sync::Arc;

use hpc_schema::gateway::Peer;
use hpc_schema::id::NodeId;
use hpc_schema::registry::Cluster;

use super::members::Members;

/// All that is known of a cluster, so that one look finds it. It stays when the cluster's nodes are gone: there are few.
#[derive(Debug, Default)]
pub(super) struct OfCluster {
    /// As read from the chain.
    pub(super) record: Option<Arc<Cluster>>,
    pub(super) nodes: Members,
    /// Of these nodes, in their order.
    pub(super) ids: BTreeSet<NodeId>,
    /// Who can be measured, in the order of ids.
    pub(super) peers: Arc<Vec<Peer>>,
}
