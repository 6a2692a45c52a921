//! Messages of the benchmark contract.

use cosmwasm_std::Binary;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::HealthStatus;
use serde::{Deserialize, Serialize};

/// How nodes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// A JSON record for each node.
    Json = 1,
    /// Two binary records for each node: what never changes, and what each report changes.
    Binary = 2,
}

/// Creates an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InstantiateMsg {
    /// Its layout, for good.
    pub layout: Layout,
}

/// A node, taken on trust: registrations are not what is compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewNode {
    /// Which node.
    pub node_id: NodeId,
    /// Ed25519 key, 32 bytes.
    pub agent_pubkey: Binary,
    /// What the tag that its reports are bound to is derived from.
    pub epoch: u64,
    /// Number in place of the id, in the binary layout.
    pub page: u16,
    /// The other half of the number.
    pub slot: u8,
    /// Digest of its second section, 16 bytes: every report signs it.
    pub section_digest: Binary,
}

/// What changes state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecuteMsg {
    /// Adds nodes.
    Register {
        /// Their cluster.
        cluster_id: ClusterId,
        /// The nodes.
        nodes: Vec<NewNode>,
    },
    /// Reports as JSON, each verified on its own.
    ReportJson {
        /// One or many.
        reports: Vec<JsonReport>,
    },
    /// Reports in the registry's own batch encoding, verified in one call.
    ReportBinary {
        /// Batch bytes of at most 256 reports.
        reports: Binary,
    },
}

/// What can be asked; the answer is the node's last sequence.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryMsg {
    /// In the JSON layout.
    Json {
        /// Its cluster.
        cluster_id: ClusterId,
        /// Which node.
        node_id: NodeId,
    },
    /// In the binary layout.
    Binary {
        /// First half of its number.
        page: u16,
        /// Second half.
        slot: u8,
    },
}

/// A report with the figures and the signature of one in a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JsonReport {
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// Which node.
    pub node_id: NodeId,
    /// Its number of this report.
    pub sequence: u32,
    /// UNIX seconds.
    pub timestamp: u32,
    /// Health.
    pub status: HealthStatus,
    /// Whether jobs run.
    pub has_jobs: bool,
    /// Free cores.
    pub cores_available: u16,
    /// Free memory, GiB.
    pub memory_gb_available: u32,
    /// Free GPUs.
    pub gpus_available: u8,
    /// Free storage, GiB.
    pub storage_gb_available: u32,
    /// Mean latency, µs.
    pub avg_latency_us: u32,
    /// Measurements behind it.
    pub measurements: u8,
    /// SHA-256 of the payload.
    pub payload_hash: Binary,
    /// Ed25519 signature of the registry's signed message.
    pub signature: Binary,
}
