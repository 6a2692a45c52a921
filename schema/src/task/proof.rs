//! A task's result with its way to the chain: the node's signature over it, its row in the provider's audit log, and the
//! rows from there to one whose digest is anchored.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{Task, TaskHash, TaskResult, TaskScope, task_hash, task_message, verify_result};
use crate::audit::{Chain, Row};
use crate::bytes::base64_exact;
use crate::id::{ClusterId, NodeId, TaskId};
use crate::key::{AgentKey, Verifier};

/// `action` of a result's row.
pub const RESULT_ACTION: &str = "task.result";

/// `target` of a task's rows.
#[must_use]
pub fn audit_target(cluster: &ClusterId, node: &NodeId, task: &TaskId) -> String {
    format!("task {cluster}/{task} of {node}")
}

/// What stands in the `detail` of a result's row: of what bytes, in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultDigests {
    /// The task's hash.
    pub hash: String,
    /// SHA-256 of the result as transmitted.
    pub result_sha256: String,
    /// SHA-256 of its `cleanup` as transmitted, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup_sha256: Option<String>,
}

impl ResultDigests {
    /// Of this result.
    #[must_use]
    pub fn of(result: &TaskResult) -> Self {
        #[derive(Deserialize)]
        struct Released<'a> {
            #[serde(borrow)]
            cleanup: &'a RawValue,
        }
        let sha256 = |text: &str| hex::encode(Sha256::digest(text.as_bytes()));
        let released: Option<Released<'_>> = serde_json::from_str(result.result.get()).ok();
        Self {
            hash: result.task_hash.clone(),
            result_sha256: sha256(result.result.get()),
            cleanup_sha256: released.map(|r| sha256(r.cleanup.get())),
        }
    }
}

/// The file that proves how a task ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskProof {
    /// The chain.
    pub chain_id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// What was asked for; its signature may be absent.
    pub task: Task,
    /// How it ended, as the node signed it.
    pub result: TaskResult,
    /// The key that signed it.
    pub result_key: AgentKey,
    /// The audit log from the result's row on, to one whose digest is anchored.
    pub rows: Vec<Row>,
}

/// What a proof says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// The task's hash.
    pub hash: TaskHash,
    /// Of the result, as the log has them.
    pub digests: ResultDigests,
    /// Number of the result's row.
    pub row: u64,
    /// Number of the last row.
    pub anchored_row: u64,
    /// The digest that must stand on chain.
    pub anchored_digest: String,
}

/// Why a proof does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskProofError {
    /// The result is not the node's, or of another task.
    #[error("the result: {0}")]
    Result(String),
    /// The log's first row is not the result's.
    #[error("the first row is not the result's: {0}")]
    Row(&'static str),
    /// A row does not follow.
    #[error(transparent)]
    Log(#[from] crate::audit::Broken),
}

impl TaskProof {
    /// Checks everything that can be checked without the chain.
    ///
    /// # Errors
    /// What does not hold.
    pub fn verify(&self, verifier: &impl Verifier) -> Result<Proven, TaskProofError> {
        let scope = TaskScope {
            chain_id: &self.chain_id,
            contract: &self.contract,
            cluster_id: &self.cluster_id,
            node_id: &self.node_id,
        };
        let nonce = base64_exact::<16>(&self.task.nonce)
            .ok_or_else(|| TaskProofError::Result("the task has no nonce".to_owned()))?;
        let hash = task_hash(&task_message(&scope, &self.task, &nonce));
        verify_result(&self.result, hash, &self.result_key, verifier)
            .map_err(|e| TaskProofError::Result(e.to_string()))?;
        let first = self.rows.first().ok_or(TaskProofError::Row("there is none"))?;
        let target = audit_target(&self.cluster_id, &self.node_id, &self.task.task_id);
        if first.action != RESULT_ACTION || first.target != target {
            return Err(TaskProofError::Row("it is of another act"));
        }
        let digests = ResultDigests::of(&self.result);
        if serde_json::from_str(&first.detail).ok() != Some(digests.clone()) {
            return Err(TaskProofError::Row("it has other digests"));
        }
        let mut chain = Chain::before(first).ok_or(TaskProofError::Row("it follows nothing"))?;
        for row in &self.rows {
            chain.follow(row)?;
        }
        Ok(Proven {
            hash,
            digests,
            row: first.seq,
            anchored_row: chain.seq,
            anchored_digest: hex::encode(chain.digest),
        })
    }
}
