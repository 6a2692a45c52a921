//! The agent: tasks taken and ended as `docs/protocol.md` says.

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::task::{
    Task, TaskOutcome, TaskResult, TaskScope, WaitAnswer, result_message, result_path, task_hash,
    task_message, wait_path,
};
use hpc_schema::time::Rfc3339;
use serde_json::Value;
use serde_json::value::RawValue;

use super::agent::RawAgent;
use super::{Answer, now};
use crate::chain::CHAIN_ID;

impl RawAgent {
    /// Waits for tasks.
    ///
    /// # Errors
    /// If none comes in 20 s.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let path = format!("{}?wait_seconds=20", wait_path(&self.node));
        let answer = self
            .gateway
            .ask(&path, None, Some((&self.certificate, &self.tls_key)))?;
        ensure!(answer.status == 200, "{answer:?}");
        // By its bytes: parameters are signed as they are written.
        let text = std::fs::read_to_string(self.gateway.folder.join("response.json"))?;
        let answer: WaitAnswer = serde_json::from_str(&text)?;
        Ok(answer.tasks.into_iter().map(|d| d.task).collect())
    }

    /// Says that a task was completed, with this result.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub fn complete(&self, contract: &str, task: &Task, result: &Value) -> Result<Answer> {
        let scope = TaskScope {
            chain_id: CHAIN_ID,
            contract,
            cluster_id: &self.cluster,
            node_id: &self.node,
        };
        let nonce = STANDARD.decode(&task.nonce).context("nonce")?;
        let nonce: [u8; 16] = nonce.try_into().map_err(|_| anyhow!("nonce"))?;
        let hash = task_hash(&task_message(&scope, task, &nonce));
        let at = Rfc3339::from_unix(now()?, 0)?;
        let mut result = TaskResult {
            task_hash: hash.to_hex(),
            outcome: TaskOutcome::Completed,
            code: None,
            detail: None,
            result: RawValue::from_string(result.to_string())?,
            started_at: at.clone(),
            finished_at: at,
            signature: String::new(),
        };
        let signature: [u8; 64] = self.key.sign(&result_message(hash, &result)).into();
        result.signature = STANDARD.encode(signature);
        let path = result_path(&self.node, &task.task_id);
        let client = Some((&self.certificate, &self.tls_key));
        self.gateway
            .ask(&path, Some(&serde_json::to_value(&result)?), client)
    }
}
