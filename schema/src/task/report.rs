use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::envelope::TaskHash;
use super::state::TaskState;
use crate::bytes::{base64_exact, push_lp};
use crate::code::Code;
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;
use crate::time::Rfc3339;

/// Longest `result` in bytes.
pub const MAX_TASK_RESULT_BYTES: usize = 256 * 1024;
/// Longest `detail` in bytes.
const MAX_DETAIL: usize = 1024;

/// How a task ended on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// Done.
    Completed,
    /// Not done; `code` says why, and `outcome_unknown` that nobody knows.
    Failed,
    /// Not begun, because its time was over.
    Expired,
    /// Taken back, and undone.
    Cancelled,
}

impl TaskOutcome {
    /// The word in JSON and in the signed bytes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        TaskState::from(self).as_str()
    }
}

impl From<TaskOutcome> for TaskState {
    fn from(outcome: TaskOutcome) -> Self {
        match outcome {
            TaskOutcome::Completed => Self::Completed,
            TaskOutcome::Failed => Self::Failed,
            TaskOutcome::Expired => Self::Expired,
            TaskOutcome::Cancelled => Self::Cancelled,
        }
    }
}

/// A result as the agent sends it: a task on record as done was done on that node.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskResult {
    /// Lower-case hex of the task's hash.
    pub task_hash: String,
    /// How it ended.
    pub outcome: TaskOutcome,
    /// Why it was not done; a code's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub detail: Option<String>,
    /// Raw JSON object by the type's schema; of a task that failed, what was found. Its bytes are signed.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub result: Box<RawValue>,
    /// When it was begun.
    pub started_at: Rfc3339,
    /// When it ended.
    pub finished_at: Rfc3339,
    /// Base64 Ed25519 signature by the agent's key over [`result_message`].
    pub signature: String,
}

impl fmt::Debug for TaskResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskResult")
            .field("task_hash", &self.task_hash)
            .field("outcome", &self.outcome)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// What the agent signs: `"hpc-task-result-v1" ‖ task hash 32 ‖ lp(outcome) ‖ lp(code or "") ‖ lp(detail or "") ‖
/// SHA-256(result as transmitted) 32 ‖ started_at u64 ‖ finished_at u64`. The hash binds chain, contract, cluster, node
/// and task.
#[must_use]
pub fn result_message(hash: TaskHash, result: &TaskResult) -> Vec<u8> {
    let mut out = b"hpc-task-result-v1".to_vec();
    out.extend_from_slice(&hash.0);
    push_lp(&mut out, result.outcome.as_str());
    push_lp(&mut out, result.code.as_deref().unwrap_or_default());
    push_lp(&mut out, result.detail.as_deref().unwrap_or_default());
    out.extend_from_slice(&Sha256::digest(result.result.get().as_bytes()));
    out.extend_from_slice(&result.started_at.seconds().0.to_be_bytes());
    out.extend_from_slice(&result.finished_at.seconds().0.to_be_bytes());
    out
}

/// Checks that a result is of the task with this hash and signed by the node's key.
///
/// # Errors
/// [`Code::Malformed`], [`Code::BodyTooLarge`]; [`Code::TaskMismatch`] if it is of another task;
/// [`Code::SignatureInvalid`].
pub fn verify_result(
    result: &TaskResult,
    hash: TaskHash,
    agent_key: &AgentKey,
    verifier: &impl Verifier,
) -> Result<(), Refusal> {
    let malformed = |field: &str, what: &str| Err(Refusal::field(Code::Malformed, field, what).malformed());
    if result.result.get().len() > MAX_TASK_RESULT_BYTES {
        let what = format!("has more than {MAX_TASK_RESULT_BYTES} bytes");
        return Err(Refusal::field(Code::BodyTooLarge, "result", what));
    }
    if !result.result.get().starts_with('{') {
        return malformed("result", "must be an object");
    }
    if result.detail.as_ref().is_some_and(|d| d.len() > MAX_DETAIL) {
        return malformed("detail", "has more than 1024 bytes");
    }
    if result
        .code
        .as_deref()
        .is_some_and(|c| Code::from_word(c).is_none())
    {
        return malformed("code", "is not in the list");
    }
    if result.outcome == TaskOutcome::Completed && result.code.is_some() {
        return malformed("code", "must be absent when the task was completed");
    }
    let Some(signature) = base64_exact::<64>(&result.signature) else {
        return malformed("signature", "must be base64 of 64 bytes");
    };
    if TaskHash::from_hex(&result.task_hash) != Some(hash) {
        let what = "is not the hash of the task that the path names";
        return Err(Refusal::field(Code::TaskMismatch, "task_hash", what));
    }
    if verifier.verify(&result_message(hash, result), &signature, agent_key.as_bytes()) {
        return Ok(());
    }
    Err(Refusal::field(
        Code::SignatureInvalid,
        "signature",
        "does not verify over the result with the node's registered key",
    ))
}
