//! Answers to queries, and the data that executions return. Names follow specification 000
//! "On-Chain Metadata Mapping". Every answer says at which block it holds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::msg::JobIds;
use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;
use crate::node::NodeState;
use crate::time::UnixSeconds;

/// The block that an answer was read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockRef {
    /// Height.
    pub height: u64,
    /// Its time.
    pub time: UnixSeconds,
}

/// Administration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigAnswer {
    /// Who may change parameters.
    pub admin: String,
    /// Who has been offered the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_admin: Option<String>,
    /// Whether registrations are paused.
    pub registrations_paused: bool,
    /// Contract name and version (cw2).
    pub contract: String,
    /// Semantic version.
    pub version: String,
    /// Storage layout version.
    pub layout: u32,
    /// Chain id the contract runs on.
    pub chain_id: String,
    /// Block of this answer.
    pub block: BlockRef,
}

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
    /// When that was.
    pub recorded_at: UnixSeconds,
    /// What a sweep would make of it now; absent for larger clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<AggregateView>,
    /// Block of this answer.
    pub block: BlockRef,
}

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

/// What became of a node's jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobsStatus {
    /// The node reports.
    #[default]
    Normal,
    /// The node went OFFLINE with jobs.
    AtRisk,
    /// The node was DEREGISTERED with jobs.
    Failed,
}

/// Jobs of a node as far as the cluster's privacy setting shows them.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobsOnRecord {
    /// Whether jobs run.
    pub running: bool,
    /// How many ids the agent reported.
    pub count: u32,
    /// Ids, or their hashes, or nothing.
    pub active_job_ids: Vec<String>,
    /// What became of them.
    pub status: JobsStatus,
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

/// What a relayer needs of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayView {
    /// Which node.
    pub node_id: NodeId,
    /// Page of its slot.
    pub page: u16,
    /// Slot in the page.
    pub slot: u8,
    /// Registration epoch.
    pub epoch: u64,
    /// Last sequence on chain in this epoch.
    pub sequence: u32,
    /// The agent's key.
    pub agent_pubkey: AgentKey,
    /// Hex of the stored section digest (16 bytes); zeros before the first.
    pub section_digest: String,
    /// Recorded state.
    pub recorded_state: NodeState,
    /// Effective state.
    pub state: NodeState,
    /// Last heartbeat that counted.
    pub last_heartbeat: UnixSeconds,
    /// Since when OFFLINE is on record, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline_since: Option<UnixSeconds>,
    /// Whether a provider's drain is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// For relayers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayAnswer {
    /// Known ones of the nodes asked for.
    pub nodes: Vec<RelayView>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// A node whose jobs are at risk or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeJobs {
    /// Which node.
    pub node_id: NodeId,
    /// Its effective state.
    pub state: NodeState,
    /// Its jobs.
    pub jobs: JobsOnRecord,
}

/// A page of nodes with jobs at risk or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobsAnswer {
    /// In order of page, slot.
    pub nodes: Vec<NodeJobs>,
    /// `start_after` of the next call; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// Raw bytes, base64; the layout stands in `docs/protocol.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RawPageAnswer {
    /// Hot page.
    pub hot: String,
    /// Key page.
    pub keys: String,
    /// Section page.
    pub sections: String,
    /// Statistics page.
    pub stats: String,
    /// Block of this answer.
    pub block: BlockRef,
}

/// One anchored digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorView {
    /// What it is of.
    pub kind: String,
    /// Lower-case hex SHA-256.
    pub digest: String,
    /// Who anchored it.
    pub sender: String,
    /// Height of its block.
    pub height: u64,
    /// Time of its block.
    pub time: UnixSeconds,
}

/// One anchor, if there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorAnswer {
    /// Absent: never anchored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<AnchorView>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// A page of anchors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorsAnswer {
    /// Oldest first.
    pub anchors: Vec<AnchorView>,
    /// `start_after` of the next call; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// Data returned by `submit_reports`. Items are counted from 0 over all groups in order; those that
/// are listed nowhere were accepted without a notice. A group whose framing cannot be read counts in
/// `bad_groups` and its unread items in nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitAnswer {
    /// How many were accepted.
    pub accepted: u32,
    /// `[item, code number]` of each refused one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(u32, u8)>,
    /// `[item, code number]` of accepted ones with a notice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<(u32, u8)>,
    /// `[group, code number]` of groups that could not be read to their end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_groups: Vec<(u32, u8)>,
}

/// Data returned by `register_node`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterAnswer {
    /// Registration epoch.
    pub epoch: u64,
    /// Page of its slot.
    pub page: u16,
    /// Slot in the page.
    pub slot: u8,
}

/// Data returned by `sweep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepAnswer {
    /// Pages visited.
    pub pages: u32,
    /// Transitions recorded.
    pub transitions: u32,
    /// Whether the walk has come to the end and will begin anew.
    pub done: bool,
}

/// Data returned by `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PruneAnswer {
    /// Nodes removed.
    pub removed: u32,
    /// Whether nothing more is due.
    pub done: bool,
}
