//! How a task ended, proven to somebody who trusts the chain and the node's key, and not this provider.

use std::collections::HashSet;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, TaskId};
use hpc_schema::task::{RESULT_ACTION, TaskProof, TaskResult, audit_target};

use super::Admin;
use super::error::AdminError;
use crate::audit::{self, KIND, Row};
use crate::daemon::client;
use crate::task::{self, TaskRow};

/// Anchors that are asked for at once.
const PAGE: u32 = 100;
/// Rows between a result and its anchor at most.
const MOST_ROWS: usize = 200_000;

impl Admin {
    /// The proof of a task's result: it can be made once the log was anchored after the result.
    ///
    /// # Errors
    /// If there is no such task, it has no result, or nothing was anchored since.
    pub async fn prove_task(
        &self,
        id: &TaskId,
        cluster: Option<&ClusterId>,
    ) -> Result<TaskProof, AdminError> {
        let row = self.task(id, cluster).await?;
        let (Some(result), Some(key)) = (&row.result, &row.result_key) else {
            let what = format!("is {} and has no result of its node", row.state);
            return Err(AdminError::field(Code::InvalidState, "task_id", what));
        };
        let broken = |what: &str| AdminError::field(Code::InvalidState, "task_id", what);
        let result: TaskResult =
            serde_json::from_str(result.get()).map_err(|_| broken("has a result that cannot be read"))?;
        let result_key = key
            .parse()
            .map_err(|_| broken("has a result whose key cannot be read"))?;
        let task = task::unsigned_of(&row).ok_or_else(|| broken("has times that cannot be written"))?;
        let Some((chain_id, contract)) = self.store.bound().await? else {
            return Err(broken("belongs to no contract; start the daemon once"));
        };
        let rows = self.rows_to_anchor(&row).await?;
        Ok(TaskProof {
            chain_id,
            contract,
            cluster_id: row.cluster_id,
            node_id: row.node_id,
            task,
            result,
            result_key,
            rows,
        })
    }

    /// From the result's row to the first one that is anchored in the task's cluster.
    async fn rows_to_anchor(&self, row: &TaskRow) -> Result<Vec<Row>, AdminError> {
        let reader = self.store.reader();
        let target = audit_target(&row.cluster_id, &row.node_id, &row.task_id);
        let seq = audit::newest_of(reader, RESULT_ACTION, &target).await?;
        let seq = seq
            .ok_or_else(|| AdminError::field(Code::InvalidState, "task_id", "has no row in the audit log"))?;
        let anchored = self.anchored_digests(&row.cluster_id).await?;
        let mut rows = Vec::new();
        let mut after = seq.saturating_sub(1);
        while rows.len() < MOST_ROWS {
            let page = audit::page(reader, after, audit::MAX_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for row in page {
                let found = anchored.contains(&row.digest);
                rows.push(row);
                if found {
                    return Ok(rows);
                }
            }
        }
        let what = "has a result that is not anchored yet; that happens once in audit.anchor_interval, in clusters that the \
                    operator key owns or operates";
        Err(AdminError::field(Code::InvalidState, "task_id", what))
    }

    async fn anchored_digests(&self, cluster: &ClusterId) -> Result<HashSet<String>, AdminError> {
        let chain = |e: &dyn std::fmt::Display| AdminError::Chain(e.to_string());
        let client = client(&self.config).map_err(|e| chain(&e))?;
        let (mut all, mut after) = (HashSet::new(), None);
        loop {
            let kind = Some(KIND.to_owned());
            let page = client.anchors(cluster.clone(), kind, after, Some(PAGE)).await;
            let page = page.map_err(|e| chain(&e))?.value;
            all.extend(page.anchors.into_iter().map(|a| a.digest));
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }
}
