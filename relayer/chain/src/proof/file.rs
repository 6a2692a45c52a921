use hpc_schema::heartbeat::HeartbeatAuth;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registry::JobIds;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the file says it is.
pub const FORMAT: &str = "virtengine-heartbeat-proof";
/// Its version.
pub const VERSION: u32 = 1;

/// The file. Bytes are base64; what a node's RPC gives stands as the RPC gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Chain.
    pub chain_id: String,
    /// Address of the registry contract.
    pub contract: String,
    /// Who sent the heartbeat.
    pub agent: Agent,
    /// The payload: the very text that the agent signed.
    pub heartbeat: String,
    /// Its signatures and the report that went on chain.
    pub auth: HeartbeatAuth,
    /// The transaction, base64.
    pub tx: String,
    /// Where it is in its block.
    pub inclusion: Inclusion,
    /// `signed_header` of the RPC's `commit`: the header, and the validators' signatures over its hash.
    pub signed_header: Value,
    /// `validators` of the RPC's `validators` at the same height.
    pub validators: Value,
}

/// Whose heartbeat it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// Registration epoch.
    pub epoch: u64,
    /// The key registered for that epoch.
    pub public_key: AgentKey,
    /// What of job ids the cluster made public at the time; the report's second section follows from it.
    pub job_ids: JobIds,
}

/// A path in the Merkle tree over a block's transactions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inclusion {
    /// Number of the transaction in the block.
    pub index: u64,
    /// Transactions in the block.
    pub total: u64,
    /// Hashes beside the path, from the leaf's neighbour upwards; base64.
    pub aunts: Vec<String>,
}
