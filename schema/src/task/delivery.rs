use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cancel::Cancellation;
use super::envelope::Task;
use super::rotation::KeyRotation;
use crate::id::{NodeId, TaskId};
use crate::time::Rfc3339;

/// Longest `message` of a progress event in bytes; the gateway cuts what is longer.
pub const MAX_PROGRESS_MESSAGE: usize = 256;

/// Where a node waits for tasks.
#[must_use]
pub fn wait_path(node: &NodeId) -> String {
    format!("/internal/v1/nodes/{node}/tasks/wait")
}

/// Where a node says how a task ended.
#[must_use]
pub fn result_path(node: &NodeId, task: &TaskId) -> String {
    format!("/internal/v1/nodes/{node}/tasks/{task}/result")
}

/// Where a node says how far it is.
#[must_use]
pub fn progress_path(node: &NodeId, task: &TaskId) -> String {
    format!("/internal/v1/nodes/{node}/tasks/{task}/progress")
}

/// What a node that waits is told; 204 without a body if there was nothing in time.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct WaitAnswer {
    /// Tasks to begin; a task that the node knows was delivered again because its word was lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Delivered>,
    /// Tasks to end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<Cancellation>,
    /// Rotations of the task key, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_keys: Vec<KeyRotation>,
}

/// A task and how long the gateway waits for word of it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Delivered {
    /// The task.
    pub task: Task,
    /// Without progress or result within so many seconds it is delivered again.
    pub lease_seconds: u32,
    /// How often it was delivered, this time included.
    pub attempt: u32,
}

/// How far a task is. Sent when it begins, at each phase, and before the lease runs out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressRequest {
    /// Lower-case hex of the task's hash.
    pub task_hash: String,
    /// Name of the phase; `begun` at the beginning.
    #[schemars(length(min = 1, max = 48))]
    pub phase: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub message: Option<String>,
    /// When the phase began, by the node's clock.
    pub at: Rfc3339,
}
