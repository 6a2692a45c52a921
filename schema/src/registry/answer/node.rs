//! NodeMetadata.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BlockRef, JobsOnRecord};
use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;
use crate::node::NodeState;
use crate::time::UnixSeconds;

/// Available (not total) resources, by the specification's mapping.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Available cores.
    pub cpu_cores: u32,
    /// Available GiB.
    pub memory_gb: u32,
    /// Available GPUs.
    pub gpus: u32,
    /// Absent when unknown or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Available GiB.
    pub storage_gb: u32,
}

/// Totals of a node, from its second section.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Cores.
    pub cpu_cores: u32,
    /// GiB.
    pub memory_gb: u32,
    /// GPUs.
    pub gpus: u32,
    /// GiB.
    pub storage_gb: u32,
}

/// One latency measurement on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyOnRecord {
    /// Measured peer.
    pub target_node_id: String,
    /// Microseconds.
    pub latency_us: u32,
    /// 0–100.
    pub packet_loss_percent: u8,
    /// When.
    pub measured_at: UnixSeconds,
}

/// A provider's drain in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Who ordered it.
    pub ordered_by: String,
    /// When.
    pub ordered_at: UnixSeconds,
    /// Until when OFFLINE does not become DEREGISTERED.
    pub until: UnixSeconds,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// NodeMetadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Unique within the cluster.
    pub node_id: NodeId,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The cluster's owner when the node was registered.
    pub provider_address: String,
    /// What a sweep would record now.
    pub state: NodeState,
    /// What is recorded.
    pub recorded_state: NodeState,
    /// Whether a scheduler may use it (decision 19).
    pub active: bool,
    /// As the agent reported it; absent before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_status: Option<String>,
    /// Last heartbeat that counted; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<UnixSeconds>,
    /// Seconds since then at this block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Sequence number of the last report.
    pub sequence: u32,
    /// Registration epoch.
    pub epoch: u64,
    /// Available.
    pub resources: Resources,
    /// Totals; absent before the first section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// Milliseconds, half up.
    pub avg_latency_ms: u64,
    /// Microseconds.
    pub avg_latency_us: u32,
    /// From the section.
    pub latency_measurements: Vec<LatencyOnRecord>,
    /// Semantic version, from the section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The agent's key.
    pub agent_pubkey: AgentKey,
    /// From the registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// From the registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_fingerprint: Option<String>,
    /// When this epoch began.
    pub registered_at: UnixSeconds,
    /// Times it left OFFLINE by a report.
    pub recovery_count: u32,
    /// Sum of those silences.
    pub total_downtime_seconds: u64,
    /// A provider's drain in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// Its jobs.
    pub jobs: JobsOnRecord,
    /// Page of its slot.
    pub page: u16,
    /// Slot in the page.
    pub slot: u8,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeAnswer {
    /// The node.
    pub node: NodeView,
    /// Block of this answer.
    pub block: BlockRef,
}

/// A page of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodesAnswer {
    /// In order of cluster, page, slot.
    pub nodes: Vec<NodeView>,
    /// `start_after` of the next call; absent at the end. A page may hold fewer than `limit`, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Block of this answer.
    pub block: BlockRef,
}
