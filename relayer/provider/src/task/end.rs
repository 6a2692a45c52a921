use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::refusal::Refusal;
use hpc_schema::task::{TaskHash, TaskResult, TaskState, result_message, verify_result};

use super::row::TaskRow;
use crate::db::{self, Conn, Query, Row};
use crate::store::{StoreError, int};

/// What became of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is on record.
    Recorded,
    /// It was before.
    Known,
    /// It is refused.
    Refused(Refusal),
}

/// Asks for a node's task.
pub fn ask_task<'q>((cluster, node): (&'q ClusterId, &'q NodeId), id: &'q TaskId) -> Query<'q> {
    db::query("SELECT * FROM task WHERE cluster_id = ? AND task_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(id.as_str())
        .bind(node.as_str())
}

/// What [`ask_task`] says.
///
/// # Errors
/// If it cannot be read.
pub fn told_task(rows: &[Row]) -> Result<Option<TaskRow>, StoreError> {
    rows.first().map(TaskRow::read).transpose()
}

/// What is to become of a node's result. It is checked against the task on record and the node's key; the first one counts,
/// but that a task of which nobody knew the end is resolved by a result that comes after all.
#[must_use]
pub fn judge(row: Option<&TaskRow>, result: &TaskResult, key: &AgentKey) -> Taken {
    let Some(row) = row else {
        let what = "is not on record for this node";
        return Taken::Refused(Refusal::field(Code::UnknownTask, "task_id", what));
    };
    if let Err(refusal) = verify_result(result, row.hash, key, &ZebraVerifier) {
        return Taken::Refused(refusal);
    }
    if let Some(before) = &row.result {
        return same(before.get(), result, row.hash);
    }
    let unresolved =
        row.state == TaskState::Failed && row.code.as_deref() == Some(Code::OutcomeUnknown.as_str());
    let state = TaskState::from(result.outcome);
    if !unresolved && !row.state.may_become(state) {
        let what = format!("the task is {}", row.state);
        return Taken::Refused(Refusal::whole(Code::InvalidState, what));
    }
    Taken::Recorded
}

/// Puts a result on record that was judged so.
///
/// # Errors
/// If it cannot be written.
pub fn ended<'q>(
    row: &'q TaskRow,
    result: &'q TaskResult,
    key: &AgentKey,
    now_ms: u64,
) -> Result<Query<'q>, StoreError> {
    let state = TaskState::from(result.outcome);
    let text = serde_json::to_string(result).map_err(std::io::Error::from)?;
    Ok(db::query(
        "UPDATE task SET state = ?, ended_ms = ?, code = ?, detail = ?, result = ?, result_key = ?, lease_until_ms = NULL
         WHERE cluster_id = ? AND task_id = ?",
    )
    .bind(state.as_str())
    .bind(int(now_ms))
    .bind(&result.code)
    .bind(&result.detail)
    .bind(text)
    .bind(key.to_base64())
    .bind(row.cluster_id.as_str())
    .bind(row.task_id.as_str()))
}

/// The same words may come twice; others may not.
fn same(before: &str, result: &TaskResult, hash: TaskHash) -> Taken {
    let before = serde_json::from_str::<TaskResult>(before);
    match before {
        Ok(b) if result_message(hash, &b) == result_message(hash, result) => Taken::Known,
        _ => {
            let what = "another result of this task is on record";
            Taken::Refused(Refusal::whole(Code::TaskMismatch, what))
        }
    }
}

/// Takes a task back: at once if the node does not have it, else the node is told. The state then; none if it was over
/// or there is none.
///
/// # Errors
/// If the store fails.
pub async fn cancel(
    conn: &mut Conn,
    cluster: &ClusterId,
    id: &TaskId,
    by: &str,
    now_ms: u64,
) -> Result<Option<TaskState>, StoreError> {
    let row = db::query(
        "UPDATE task SET cancelled_by = coalesce(cancelled_by, ?3),
             state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
             code = CASE state WHEN 'queued' THEN 'task_cancelled' ELSE code END,
             ended_ms = CASE state WHEN 'queued' THEN ?4 ELSE ended_ms END
         WHERE cluster_id = ?1 AND task_id = ?2 AND state IN ('queued', 'dispatched', 'running') RETURNING *",
    )
    .bind(cluster.as_str())
    .bind(id.as_str())
    .bind(by)
    .bind(int(now_ms))
    .fetch_optional(conn)
    .await?;
    Ok(row.as_ref().map(TaskRow::read).transpose()?.map(|r| r.state))
}
