//! Which thing a path names.

use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::key::AgentKey;
use schemars::JsonSchema;
use serde::Deserialize;

/// A node.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfNode {
    /// Its id.
    pub(super) node_id: NodeId,
}

/// An order.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfCommand {
    /// Its id.
    #[schemars(length(min = 1, max = 64))]
    pub(super) command_id: String,
}

/// A task.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfTask {
    /// Its id.
    pub(super) task_id: TaskId,
}

/// Which cluster's node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InCluster {
    /// Its cluster, if several have a node, or a task, of this id.
    pub(super) cluster_id: Option<ClusterId>,
}

/// Which of the nodes of an id that wait for approval.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OfKey {
    /// Its cluster, if several have a node of this id that waits.
    pub(super) cluster_id: Option<ClusterId>,
    /// Its key, base64, if several wait under this id; `+` is written `%2B`.
    pub(super) public_key: Option<AgentKey>,
}

/// A token.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfToken {
    /// Its id.
    #[schemars(length(min = 1, max = 64))]
    pub(super) jti: String,
}

/// A credential.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfCredential {
    /// Its id.
    #[schemars(length(min = 1, max = 64))]
    pub(super) id: String,
}
