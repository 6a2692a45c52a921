use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::refusal::Refusal;
use hpc_schema::report::MAX_AHEAD_SECONDS;
use hpc_schema::task::{
    TaskHash, TaskOutcome, TaskResult, TaskState, check_output, result_message, verify_result,
};
use hpc_schema::time::UnixSeconds;

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
    /// It is refused though the node signed it, and will say nothing else: nobody knows how the task ended.
    Unusable(Refusal),
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

/// What is to become of a node's result. It is checked against the task on record, the node's key and, of a completed task,
/// the type's schema; the first one counts, but that a task of which nobody knew the end is resolved by a result that comes
/// after all.
#[must_use]
pub fn judge(row: Option<&TaskRow>, result: &TaskResult, key: &AgentKey, now: UnixSeconds) -> Taken {
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
    match completed(row, result, now) {
        Ok(()) => Taken::Recorded,
        // Its time will come.
        Err(refusal) if refusal.code == Code::TimestampInFuture => Taken::Refused(refusal),
        Err(refusal) => Taken::Unusable(refusal),
    }
}

/// Whether a task can have been completed so: by its type's schema, not before it was issued, and not in the future, both
/// but for what clocks may differ. Of other ends the node says what it can, whatever its clock.
fn completed(row: &TaskRow, result: &TaskResult, now: UnixSeconds) -> Result<(), Refusal> {
    if result.outcome != TaskOutcome::Completed {
        return Ok(());
    }
    check_output(row.kind, &result.result)?;
    let finished = result.finished_at.seconds();
    if row.issued_at.since(finished) > MAX_AHEAD_SECONDS {
        let what = format!("is {finished}, the task was issued at {}", row.issued_at);
        return Err(Refusal::field(Code::InvalidField, "finished_at", what).malformed());
    }
    if finished.since(now) > MAX_AHEAD_SECONDS {
        let what = format!("is {finished}, it is {now}");
        return Err(Refusal::field(Code::TimestampInFuture, "finished_at", what));
    }
    Ok(())
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

/// Ends a task whose result was judged unusable; a better one still takes that place.
pub fn ended_unknown<'q>(row: &'q TaskRow, refusal: &Refusal, now_ms: u64) -> Query<'q> {
    db::query(
        "UPDATE task SET state = 'failed', ended_ms = ?, code = ?, detail = ?, lease_until_ms = NULL
         WHERE cluster_id = ? AND task_id = ? AND state IN ('dispatched', 'running')",
    )
    .bind(int(now_ms))
    .bind(Code::OutcomeUnknown.as_str())
    .bind(format!("the node's result is refused: {}", refusal.message))
    .bind(row.cluster_id.as_str())
    .bind(row.task_id.as_str())
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
