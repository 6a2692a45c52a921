use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::kind::{TaskType, TaskTypeError};
use crate::bytes::{base64_exact, push_lp};
use crate::code::Code;
use crate::id::{ClusterId, NodeId, TaskId};
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;
use crate::time::{Rfc3339, UnixSeconds};

/// Longest `params` in bytes.
pub const MAX_TASK_PARAMS_BYTES: usize = 64 * 1024;
/// Longest time between issue and expiry.
pub(super) const MAX_LIFE_SECONDS: u64 = 7 * 24 * 3600;

/// A task as it is delivered (specification 003). The type stays text, so that a task of tomorrow's catalogue is
/// refused by its code and not as bytes that cannot be read.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Unique in its cluster; what was carried out under an id is not carried out again.
    pub task_id: TaskId,
    /// What is to be done.
    #[schemars(with = "TaskType")]
    pub task_type: String,
    /// Raw JSON object; its bytes as transmitted are signed.
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub params: Box<RawValue>,
    /// When it was signed.
    pub issued_at: Rfc3339,
    /// Not to be begun afterwards.
    pub expires_at: Rfc3339,
    /// Base64 of 16 random bytes.
    pub nonce: String,
    /// Base64 Ed25519 signature by the cluster's task key over [`task_message`].
    pub signature: String,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameters may name secrets of a tenant.
        f.debug_struct("Task")
            .field("task_id", &self.task_id)
            .field("task_type", &self.task_type)
            .field("issued_at", &self.issued_at)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// To whom a task is bound.
#[derive(Debug, Clone, Copy)]
pub struct TaskScope<'a> {
    /// The chain.
    pub chain_id: &'a str,
    /// Bech32 address of the registry contract.
    pub contract: &'a str,
    /// The cluster.
    pub cluster_id: &'a ClusterId,
    /// The node.
    pub node_id: &'a NodeId,
}

impl TaskScope<'_> {
    /// The domain, then chain, contract, cluster and node, each with its length.
    pub(super) fn start(&self, domain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(domain);
        for text in [
            self.chain_id,
            self.contract,
            self.cluster_id.as_str(),
            self.node_id.as_str(),
        ] {
            push_lp(&mut out, text);
        }
        out
    }
}

/// SHA-256 of [`task_message`]: names a task in cancellations and results.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskHash(pub [u8; 32]);

impl TaskHash {
    /// Lower-case hex.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// From lower-case hex.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = hex::decode(text).ok()?.try_into().ok()?;
        Some(Self(bytes)).filter(|h| h.to_hex() == text)
    }
}

impl fmt::Debug for TaskHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// What the task key signs: `"hpc-task-v1" ‖ lp(chain_id) ‖ lp(contract) ‖ lp(cluster_id) ‖ lp(node_id) ‖ lp(task_id) ‖
/// lp(task_type) ‖ SHA-256(params as transmitted) 32 ‖ issued_at u64 ‖ expires_at u64 ‖ nonce 16`; lp is a big-endian
/// u16 length and the bytes, times are whole UNIX seconds, rounded down.
#[must_use]
pub fn task_message(scope: &TaskScope<'_>, task: &Task, nonce: &[u8; 16]) -> Vec<u8> {
    let mut out = scope.start(b"hpc-task-v1");
    push_lp(&mut out, task.task_id.as_str());
    push_lp(&mut out, &task.task_type);
    out.extend_from_slice(&Sha256::digest(task.params.get().as_bytes()));
    out.extend_from_slice(&task.issued_at.seconds().0.to_be_bytes());
    out.extend_from_slice(&task.expires_at.seconds().0.to_be_bytes());
    out.extend_from_slice(nonce);
    out
}

/// The hash of a task's message.
#[must_use]
pub fn task_hash(message: &[u8]) -> TaskHash {
    TaskHash(Sha256::digest(message).into())
}

/// Checks a task's signature, times and type; gives the type and the hash. The caller sees to it that one task id is
/// carried out once, and reads the parameters by [`super::Params::parse`].
///
/// # Errors
/// [`Code::Malformed`] for a nonce, signature or parameters of another form; [`Code::BodyTooLarge`];
/// [`Code::TaskSignatureInvalid`] if the task key did not sign it for this node; [`Code::TaskExpired`] after its expiry
/// or with a life of more than 7 days; [`Code::TimestampInFuture`] if it was issued more than a minute ahead;
/// [`Code::UnknownType`] for a type that is not in this version's catalogue.
pub fn verify_task(
    task: &Task,
    scope: &TaskScope<'_>,
    task_key: &AgentKey,
    now: UnixSeconds,
    verifier: &impl Verifier,
) -> Result<(TaskType, TaskHash), Refusal> {
    let malformed = |field: &str, what: &str| {
        Err(Refusal::field(Code::Malformed, format!("task.{field}"), what).malformed())
    };
    if task.params.get().len() > MAX_TASK_PARAMS_BYTES {
        let what = format!("has more than {MAX_TASK_PARAMS_BYTES} bytes");
        return Err(Refusal::field(Code::BodyTooLarge, "task.params", what));
    }
    if !task.params.get().starts_with('{') {
        return malformed("params", "must be an object");
    }
    let Some(nonce) = base64_exact::<16>(&task.nonce) else {
        return malformed("nonce", "must be base64 of 16 bytes");
    };
    let Some(signature) = base64_exact::<64>(&task.signature) else {
        return malformed("signature", "must be base64 of 64 bytes");
    };
    let message = task_message(scope, task, &nonce);
    if !verifier.verify(&message, &signature, task_key.as_bytes()) {
        return Err(Refusal::field(
            Code::TaskSignatureInvalid,
            "task.signature",
            "does not verify with the cluster's task key for this node",
        ));
    }
    let (issued, expires) = (task.issued_at.seconds(), task.expires_at.seconds());
    if now > expires {
        let what = format!("was {}, it is {now}", task.expires_at);
        return Err(Refusal::field(Code::TaskExpired, "task.expires_at", what));
    }
    if expires.since(issued) > MAX_LIFE_SECONDS {
        let what = "is more than 7 days after issued_at";
        return Err(Refusal::field(Code::TaskExpired, "task.expires_at", what));
    }
    if issued.since(now) > crate::report::MAX_AHEAD_SECONDS {
        let what = format!("is {}, it is {now}", task.issued_at);
        return Err(Refusal::field(Code::TimestampInFuture, "task.issued_at", what));
    }
    let kind = task
        .task_type
        .parse()
        .map_err(|e: TaskTypeError| Refusal::field(Code::UnknownType, "task.task_type", e))?;
    Ok((kind, task_hash(&message)))
}
