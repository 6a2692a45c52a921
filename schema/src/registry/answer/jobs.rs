//! Jobs of nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BlockRef;
use crate::id::NodeId;
use crate::node::NodeState;

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
    /// Whether jobs run, or may run: nothing is known of them.
    pub running: bool,
    /// How many ids the agent reported.
    pub count: u32,
    /// Ids, or their hashes, or nothing.
    pub active_job_ids: Vec<String>,
    /// What became of them.
    pub status: JobsStatus,
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
