//! A method for each variant of [`QueryMsg`]. The list below makes both the methods and a `match` that no longer compiles
//! when a variant, or a field of one, has no method.

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{
    AggregateAnswer, AnchorAnswer, AnchorsAnswer, ClusterAnswer, ClustersAnswer, ConfigAnswer, JobsAnswer,
    NodeAnswer, NodeFilter, NodesAnswer, Params, QueryMsg, RawPageAnswer, RelayAnswer,
};

use super::RegistryClient;
use crate::query::{At, QueryError};

macro_rules! queries {
    ($($(#[$doc:meta])* $method:ident = $variant:ident { $($field:ident : $ty:ty),* $(,)? } -> $answer:ty;)*) => {
        impl RegistryClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`QueryError`]; the contract's refusals as [`QueryError::Contract`].
                pub async fn $method(&self, $($field: $ty),*) -> Result<At<$answer>, QueryError> {
                    self.chain.smart(&self.contract, &QueryMsg::$variant { $($field),* }).await
                }
            )*
        }

        /// Never run: it compiles only while every query has its method, with all its fields.
        const _: fn(&RegistryClient, QueryMsg) = |client, query| match query {
            $(QueryMsg::$variant { $($field),* } => drop(client.$method($($field),*)),)*
        };
    };
}

queries! {
    /// Administration.
    config = Config {} -> ConfigAnswer;
    /// Parameters.
    params = Params {} -> Params;
    /// One cluster.
    cluster = Cluster { cluster_id: ClusterId } -> ClusterAnswer;
    /// A page of clusters.
    clusters = Clusters { owner: Option<String>, start_after: Option<String>, limit: Option<u32> } -> ClustersAnswer;
    /// A cluster's sums.
    aggregate = Aggregate { cluster_id: ClusterId } -> AggregateAnswer;
    /// One node.
    node = Node { cluster_id: Option<ClusterId>, node_id: NodeId } -> NodeAnswer;
    /// A page of nodes.
    nodes = Nodes { filter: NodeFilter, start_after: Option<String>, limit: Option<u32> } -> NodesAnswer;
    /// Up to 100 nodes by their ids.
    nodes_by_ids = NodesByIds { cluster_id: ClusterId, node_ids: Vec<NodeId> } -> NodesAnswer;
    /// What a relayer needs of up to 100 nodes.
    relay = Relay { cluster_id: ClusterId, node_ids: Vec<NodeId> } -> RelayAnswer;
    /// Nodes whose jobs are at risk or failed.
    jobs_at_risk = JobsAtRisk { cluster_id: ClusterId, start_after: Option<String>, limit: Option<u32> } -> JobsAnswer;
    /// Raw bytes of a page.
    raw_page = RawPage { cluster_id: ClusterId, page: u16 } -> RawPageAnswer;
    /// A page of anchored digests.
    anchors = Anchors {
        cluster_id: ClusterId, kind: Option<String>, start_after: Option<String>, limit: Option<u32>,
    } -> AnchorsAnswer;
    /// One anchored digest.
    anchor = Anchor { cluster_id: ClusterId, kind: String, digest: String } -> AnchorAnswer;
}
