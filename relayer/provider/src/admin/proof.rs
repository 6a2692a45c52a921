use hpc_chain::proof::Proof;
use hpc_schema::id::{ClusterId, NodeId};

use super::Admin;
use super::error::AdminError;
use crate::prove;

impl Admin {
    /// What proves a heartbeat of this node on chain; of the newest that can be proven if none is named.
    ///
    /// # Errors
    /// If there is no such node, or no such heartbeat of it can be proven.
    pub async fn prove(
        &self,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
        epoch: Option<u64>,
        sequence: Option<u32>,
    ) -> Result<Proof, AdminError> {
        let known = self.resolve(node_id, cluster_id).await?;
        let of = (&known.cluster_id, &known.node_id);
        let found = prove::proof(self.store.reader(), of, epoch, sequence).await?;
        found.ok_or_else(|| {
            let what = format!(
                "no such heartbeat can be proven: a newer one replaced it before it was sent, it is not in a block yet, \
                 somebody else relayed it, or it is older than agents.metrics_retention_hours; \
                 virtengine-provider node show {node_id} lists what came on chain"
            );
            AdminError::missing("sequence", what)
        })
    }
}
