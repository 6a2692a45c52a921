//! Clusters and their sums.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BlockRef;
use crate::id::ClusterId;
use crate::key::AgentKey;
use crate::registry::{Coin, JobIds};
use crate::time::UnixSeconds;

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Unique id.
    pub cluster_id: ClusterId,
    /// Bech32 address of the provider.
    pub owner: String,
    /// Offered to, in a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_owner: Option<String>,
    /// May register, drain, resume.
    pub operators: Vec<String>,
    /// For people.
    pub name: String,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// URL of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_endpoint: Option<String>,
    /// Signs commands and tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_public_key: Option<AgentKey>,
    /// What of job ids is public.
    pub job_ids: JobIds,
    /// Whether its nodes may become ACTIVE and be scheduled on.
    pub active: bool,
    /// Pages in use.
    pub pages: u16,
    /// When it was created.
    pub created_at: UnixSeconds,
    /// What was paid for it; `close_cluster` gives it to the owner. Absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deposit: Option<Coin>,
}

/// One cluster with its recorded sums.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterAnswer {
    /// The cluster.
    pub cluster: Cluster,
    /// Sums as of the last write.
    pub aggregate: AggregateView,
    /// Block of this answer.
    pub block: BlockRef,
}

/// A page of clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClustersAnswer {
    /// In order of id.
    pub clusters: Vec<Cluster>,
    /// `start_after` of the next call; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// Nodes by state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCounts {
    /// Registered, no heartbeat counted yet.
    pub pending: u32,
    /// Reporting.
    pub active: u32,
    /// Silent beyond `heartbeat_timeout`.
    pub stale: u32,
    /// Draining.
    pub draining: u32,
    /// Drained.
    pub drained: u32,
    /// Silent beyond `offline_threshold`.
    pub offline: u32,
    /// Deregistered, metadata kept.
    pub deregistered: u32,
}

/// Available GPUs of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuCount {
    /// As agents name it.
    pub gpu_type: String,
    /// Available on schedulable nodes.
    pub available: u64,
}

/// Sums of a cluster (specification 000 "Aggregation", decision 25).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AggregateView {
    /// All but DEREGISTERED.
    pub total_nodes: u32,
    /// Schedulable nodes.
    pub active_nodes: u32,
    /// Nodes by recorded (or effective) state.
    pub states: StateCounts,
    /// Over schedulable nodes.
    pub available_cpu_cores: u64,
    /// GiB over schedulable nodes.
    pub available_memory_gb: u64,
    /// Over schedulable nodes.
    pub available_gpus: u64,
    /// The same by type.
    pub gpus_by_type: Vec<GpuCount>,
    /// GiB over schedulable nodes.
    pub available_storage_gb: u64,
    /// Mean weighted by measurements, half up; 0 without measurements.
    pub avg_cluster_latency_ms: u64,
    /// The same in microseconds.
    pub avg_cluster_latency_us: u64,
    /// 0–1,000,000; the formula stands in `docs/protocol.md`.
    pub health_score: u32,
}

/// Recorded and, for clusters of up to 256 pages, effective sums.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AggregateAnswer {
    /// Which cluster.
    pub cluster_id: ClusterId,
    /// As of the last write.
    pub recorded: AggregateView,
    /// Block time of the last message that wrote the cluster's sums: a batch, a registration, a sweep that changed a
    /// node, a switch on or off. Whether a figure became another does not matter.
    pub recorded_at: UnixSeconds,
    /// What a sweep would make of it now; absent for larger clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<AggregateView>,
    /// Block of this answer.
    pub block: BlockRef,
}
