//! Messages and queries of the contract. JSON, snake case, unknown fields refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::params::ParamsUpdate;
use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;
use crate::registration::NodeIdentity;
use crate::time::UnixSeconds;

/// Creates the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstantiateMsg {
    /// Bech32 address that may change parameters (a governance address works); default: the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// Parameters that differ from the defaults.
    #[serde(default)]
    pub params: ParamsUpdate,
}

/// Migrates the contract's storage from the layout before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateMsg {}

/// What of a node's job ids lands on chain (decision 26).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobIds {
    /// The ids as they are.
    Plain,
    /// 16 hex digits of a hash bound to the cluster.
    Hashed,
    /// Only how many.
    #[default]
    None,
}

/// Reports of one cluster, encoded by [`crate::report::batch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportGroup {
    /// The cluster all the reports belong to.
    pub cluster_id: ClusterId,
    /// Base64 of the batch bytes.
    pub reports: String,
}

/// Everything that changes state. Who may send what: [`fn@super::permission`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExecuteMsg {
    /// Changes parameters.
    UpdateParams {
        /// What changes.
        params: ParamsUpdate,
    },
    /// First step of handing over the admin; `None` withdraws the proposal.
    ProposeAdmin {
        /// Bech32 address.
        admin: Option<String>,
    },
    /// Second step, by the proposed admin.
    AcceptAdmin {},
    /// Stops or allows registrations; reports go on.
    PauseRegistrations {
        /// Whether they are paused.
        paused: bool,
    },
    /// Creates a cluster; the sender becomes its owner.
    CreateCluster {
        /// Unique on the contract.
        cluster_id: ClusterId,
        /// For people; 1–64 printable ASCII characters; default: the id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// E.g. `eu-central`; up to 32 characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
        /// https URL of the site's gateway.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gateway_endpoint: Option<String>,
        /// Addresses that may register, drain, resume; at most 16.
        #[serde(default)]
        operators: Vec<String>,
        /// Ed25519 key that signs commands and tasks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task_public_key: Option<AgentKey>,
        /// What of job ids becomes public.
        #[serde(default)]
        job_ids: JobIds,
    },
    /// Changes what is given; absent fields stay.
    UpdateCluster {
        /// Which cluster.
        cluster_id: ClusterId,
        /// New name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// New region; an empty text takes it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
        /// New gateway URL; an empty text takes it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gateway_endpoint: Option<String>,
        /// The whole new list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operators: Option<Vec<String>>,
        /// New privacy of job ids: answers follow it at once, what comes on record from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job_ids: Option<JobIds>,
    },
    /// Sets the first task key, or rotates it with the old key's signature
    /// ([`crate::registration::task_key_rotation_message`]).
    SetTaskKey {
        /// Which cluster.
        cluster_id: ClusterId,
        /// The new key.
        task_public_key: AgentKey,
        /// Base64 Ed25519 signature by the present key; absent only while none is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rotation_signature: Option<String>,
    },
    /// Lets the cluster's nodes become ACTIVE.
    ActivateCluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Nodes keep their state; none is schedulable.
    DeactivateCluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Removes an inactive cluster that has no node on record, and sends its deposit to the owner. The id is free
    /// again; anchors are no longer answered.
    CloseCluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// First step of a transfer; `None` withdraws the proposal.
    ProposeClusterOwner {
        /// Which cluster.
        cluster_id: ClusterId,
        /// Bech32 address.
        owner: Option<String>,
    },
    /// Second step, by the proposed owner.
    AcceptClusterOwner {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Registers a node, or rotates its key (decisions 2 and 3). Anyone may relay it.
    RegisterNode {
        /// What the provider vouches for.
        node_identity: NodeIdentity,
        /// Base64 ADR-036 signature, 64 bytes r‖s, over [`crate::registration::canonical_registration`].
        provider_signature: String,
        /// Base64 compressed secp256k1 key (33 bytes) of the owner or an operator.
        provider_pubkey: String,
        /// Base64 Ed25519 signature by the old key over [`crate::registration::key_rotation_message`];
        /// needed while a live node is registered under this id with another key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rotation_signature: Option<String>,
    },
    /// Records DEREGISTERED from any state.
    DeregisterNode {
        /// May be left out when exactly one cluster has the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster_id: Option<ClusterId>,
        /// Which node.
        node_id: NodeId,
    },
    /// Orders a drain (decision 18).
    DrainNode {
        /// May be left out when exactly one cluster has the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster_id: Option<ClusterId>,
        /// Which node.
        node_id: NodeId,
        /// For people; up to 128 printable ASCII characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Until when OFFLINE does not become DEREGISTERED; default 7 days, at most 30.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<UnixSeconds>,
    },
    /// Ends a drain.
    ResumeNode {
        /// May be left out when exactly one cluster has the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster_id: Option<ClusterId>,
        /// Which node.
        node_id: NodeId,
    },
    /// Agents' signed reports. Anyone may relay them; every item has its own outcome.
    SubmitReports {
        /// One group a cluster, none empty.
        groups: Vec<ReportGroup>,
    },
    /// Steps silent nodes. Anyone; bounded; idempotent.
    Sweep {
        /// Only this cluster; default: all, by a cursor that goes round.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster_id: Option<ClusterId>,
        /// Most pages to visit, 1–256; default 16.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// Removes deregistered nodes past retention. Anyone; bounded.
    Prune {
        /// Most nodes to remove, 1–256; default 32.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// Records a digest with the block's height and time.
    Anchor {
        /// Which cluster.
        cluster_id: ClusterId,
        /// What it is of: 1–32 of `[a-z0-9_-]`, e.g. `audit-head`.
        kind: String,
        /// Lower-case hex SHA-256.
        digest: String,
    },
}

/// Which nodes a list query wants; all given conditions must hold.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFilter {
    /// Only this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<ClusterId>,
    /// Only clusters of this owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Only this effective state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Only schedulable nodes (decision 19), or only the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedulable: Option<bool>,
    /// At least so many cores available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_cores: Option<u32>,
    /// At least so much memory available, GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_memory_gb: Option<u32>,
    /// At least so many GPUs available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_gpus: Option<u32>,
    /// Exactly this GPU type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
}

pub use crate::node::NodeState;

/// Every question the contract answers. Lists: `limit` default 30, at most 100; `start_after` is the
/// `next` of the answer before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum QueryMsg {
    /// → [`super::ConfigAnswer`].
    Config {},
    /// → [`super::Params`].
    Params {},
    /// → [`super::ClusterAnswer`].
    Cluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// → [`super::ClustersAnswer`].
    Clusters {
        /// Only this owner's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// Cursor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_after: Option<String>,
        /// Page size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// → [`super::AggregateAnswer`].
    Aggregate {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// → [`super::NodeAnswer`].
    Node {
        /// May be left out when exactly one cluster has the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster_id: Option<ClusterId>,
        /// Which node.
        node_id: NodeId,
    },
    /// → [`super::NodesAnswer`]. Scans at most 64 pages a call; with many or large nodes an answer may end before its
    /// limit, with a `next`.
    Nodes {
        /// Conditions.
        #[serde(default)]
        filter: NodeFilter,
        /// Cursor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_after: Option<String>,
        /// Page size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// → [`super::NodesAnswer`]; unknown ids are left out.
    NodesByIds {
        /// Which cluster.
        cluster_id: ClusterId,
        /// At most 50.
        node_ids: Vec<NodeId>,
    },
    /// What a relayer needs: → [`super::RelayAnswer`]; unknown ids are left out.
    Relay {
        /// Which cluster.
        cluster_id: ClusterId,
        /// At most 100.
        node_ids: Vec<NodeId>,
    },
    /// → [`super::JobsAnswer`]: nodes whose jobs are at risk or failed.
    JobsAtRisk {
        /// Which cluster.
        cluster_id: ClusterId,
        /// Cursor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_after: Option<String>,
        /// Page size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// Raw bytes of one page: → [`super::RawPageAnswer`].
    RawPage {
        /// Which cluster.
        cluster_id: ClusterId,
        /// Page number, from 0.
        page: u16,
    },
    /// → [`super::AnchorsAnswer`], newest last.
    Anchors {
        /// Which cluster.
        cluster_id: ClusterId,
        /// Only this kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// Cursor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_after: Option<String>,
        /// Page size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// Whether and when this digest was anchored: → [`super::AnchorAnswer`].
    Anchor {
        /// Which cluster.
        cluster_id: ClusterId,
        /// What it is of.
        kind: String,
        /// Lower-case hex SHA-256.
        digest: String,
    },
}
