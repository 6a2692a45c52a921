use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::envelope::{TaskHash, TaskScope};
use crate::bytes::{base64_exact, push_lp};
use crate::code::Code;
use crate::id::TaskId;
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;

/// Takes a task back. It is signed as the task was: whoever has the gateway's TLS cannot end a tenant's machine half-way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cancellation {
    /// The task.
    pub task_id: TaskId,
    /// Lower-case hex of the task's hash.
    pub task_hash: String,
    /// Base64 Ed25519 signature by the cluster's task key over [`cancel_message`].
    pub signature: String,
}

/// What the task key signs: `"hpc-task-cancel-v1" ‖ lp(chain_id) ‖ lp(contract) ‖ lp(cluster_id) ‖ lp(node_id) ‖
/// lp(task_id) ‖ task hash 32`.
#[must_use]
pub fn cancel_message(scope: &TaskScope<'_>, task_id: &TaskId, hash: TaskHash) -> Vec<u8> {
    let mut out = scope.start(b"hpc-task-cancel-v1");
    push_lp(&mut out, task_id.as_str());
    out.extend_from_slice(&hash.0);
    out
}

/// Checks a cancellation; gives the hash of the task that it is of.
///
/// # Errors
/// [`Code::Malformed`], [`Code::TaskSignatureInvalid`].
pub fn verify_cancellation(
    cancellation: &Cancellation,
    scope: &TaskScope<'_>,
    task_key: &AgentKey,
    verifier: &impl Verifier,
) -> Result<TaskHash, Refusal> {
    let malformed = |field: &str, what: &str| {
        Refusal::field(Code::Malformed, format!("cancel.{field}"), what).malformed()
    };
    let hash = TaskHash::from_hex(&cancellation.task_hash)
        .ok_or_else(|| malformed("task_hash", "must be the lower-case hex of 32 bytes"))?;
    let signature = base64_exact::<64>(&cancellation.signature)
        .ok_or_else(|| malformed("signature", "must be base64 of 64 bytes"))?;
    let message = cancel_message(scope, &cancellation.task_id, hash);
    if verifier.verify(&message, &signature, task_key.as_bytes()) {
        return Ok(hash);
    }
    Err(Refusal::field(
        Code::TaskSignatureInvalid,
        "cancel.signature",
        "does not verify with the cluster's task key for this node",
    ))
}
