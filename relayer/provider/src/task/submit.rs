use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Task, TaskScope, TaskType, task_hash, task_message};
use hpc_schema::time::{Rfc3339, UnixSeconds};
use serde_json::value::RawValue;

use super::row::{Approval, TaskRow, find};
use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// Tasks that one node may have open.
const MAX_OPEN: i64 = 256;

/// A new task.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Unique in its cluster.
    pub task_id: TaskId,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// What is to be done.
    pub kind: TaskType,
    /// JSON object, checked.
    pub params: Box<RawValue>,
    /// Random.
    pub nonce: [u8; 16],
    /// Who submits it.
    pub submitted_by: String,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub expires_at: UnixSeconds,
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It is in the queue.
    Queued,
    /// It waits for approval.
    Held,
    /// The same task was submitted before under this id.
    Known,
    /// Another task has this id.
    Taken,
    /// The node has too many.
    Full,
}

/// A task as it is signed, without its signature; none if its times cannot be written.
pub(super) fn unsigned(
    task_id: &TaskId,
    kind: TaskType,
    params: &RawValue,
    nonce: &[u8; 16],
    (issued, expires): (UnixSeconds, UnixSeconds),
) -> Option<Task> {
    use base64::Engine as _;
    Some(Task {
        task_id: task_id.clone(),
        task_type: kind.as_str().to_owned(),
        params: params.to_owned(),
        issued_at: Rfc3339::from_unix(issued.0, 0).ok()?,
        expires_at: Rfc3339::from_unix(expires.0, 0).ok()?,
        nonce: base64::engine::general_purpose::STANDARD.encode(nonce),
        signature: String::new(),
    })
}

/// The task of a row, without its signature; none if its times cannot be written.
#[must_use]
pub fn unsigned_of(row: &TaskRow) -> Option<Task> {
    let times = (row.issued_at, row.expires_at);
    unsigned(&row.task_id, row.kind, &row.params, &row.nonce, times)
}

/// Puts a task on record; its row, if it is there or was before. One statement but where it cannot be.
///
/// # Errors
/// If the store fails.
pub async fn submit(
    conn: &mut Conn,
    new: &NewTask,
    (chain_id, contract): (&str, &str),
    now_ms: u64,
) -> Result<(Submitted, Option<TaskRow>), StoreError> {
    let times = (new.issued_at, new.expires_at);
    let task = unsigned(&new.task_id, new.kind, &new.params, &new.nonce, times)
        .ok_or_else(|| std::io::Error::other("the clock is wrong"))?;
    let scope = TaskScope {
        chain_id,
        contract,
        cluster_id: &new.cluster_id,
        node_id: &new.node_id,
    };
    let hash = task_hash(&task_message(&scope, &task, &new.nonce));
    let approval = if new.kind.needs_approval() {
        Approval::Waiting
    } else {
        Approval::None
    };
    let row = db::query(
        "INSERT INTO task (cluster_id, task_id, node_id, kind, params, nonce, hash, submitted_by, issued_at_s,
         expires_at_s, submitted_ms, approval, state)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'queued'
         WHERE (SELECT count(*) FROM task WHERE cluster_id = ?1 AND node_id = ?3
                AND state IN ('queued', 'dispatched', 'running')) < ?13
         ON CONFLICT (cluster_id, task_id) DO NOTHING RETURNING *",
    )
    .bind(new.cluster_id.as_str())
    .bind(new.task_id.as_str())
    .bind(new.node_id.as_str())
    .bind(new.kind.as_str())
    .bind(new.params.get())
    .bind(new.nonce.as_slice())
    .bind(hash.0.as_slice())
    .bind(&new.submitted_by)
    .bind(int(new.issued_at.0))
    .bind(int(new.expires_at.0))
    .bind(int(now_ms))
    .bind(approval.as_str())
    .bind(MAX_OPEN)
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(row) = row {
        let done = match approval {
            Approval::Waiting => Submitted::Held,
            _ => Submitted::Queued,
        };
        return Ok((done, Some(TaskRow::read(&row)?)));
    }
    // It was there before, or there is no room.
    let Some(before) = find(conn, Some(&new.cluster_id), &new.task_id).await?.pop() else {
        return Ok((Submitted::Full, None));
    };
    let same =
        before.node_id == new.node_id && before.kind == new.kind && before.params.get() == new.params.get();
    Ok(if same {
        (Submitted::Known, Some(before))
    } else {
        (Submitted::Taken, None)
    })
}

/// Lets a task be delivered that waits for approval; whether there was one.
///
/// # Errors
/// If the store fails.
pub async fn approve(
    conn: &mut Conn,
    cluster: &ClusterId,
    id: &TaskId,
    by: &str,
) -> Result<bool, StoreError> {
    let done = db::query(
        "UPDATE task SET approval = 'given', approved_by = ? WHERE cluster_id = ? AND task_id = ?
         AND state = 'queued' AND approval = 'waiting'",
    )
    .bind(by)
    .bind(cluster.as_str())
    .bind(id.as_str())
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Notes that the daemon has submitted a task by schedule, and nobody decided it.
///
/// # Errors
/// If the store fails.
pub async fn schedule(conn: &mut Conn, row: &TaskRow) -> Result<(), StoreError> {
    db::query("UPDATE task SET scheduled = 1 WHERE cluster_id = ? AND task_id = ?")
        .bind(row.cluster_id.as_str())
        .bind(row.task_id.as_str())
        .execute(conn)
        .await?;
    Ok(())
}
