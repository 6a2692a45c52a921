use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Task, TaskHash, TaskScope, TaskState, TaskType, task_hash, task_message};
use hpc_schema::time::{Rfc3339, UnixSeconds};
use serde_json::value::RawValue;

use super::row::{Approval, TaskRow};
use crate::db::{self, Conn, Query, Row};
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
    /// Whether nobody does, but the daemon by schedule.
    pub scheduled: bool,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub expires_at: UnixSeconds,
}

impl TaskRow {
    /// As a new one is to stand.
    fn queued(new: NewTask, hash: TaskHash, approval: Approval, now_ms: u64) -> Self {
        Self {
            task_id: new.task_id,
            cluster_id: new.cluster_id,
            node_id: new.node_id,
            kind: new.kind,
            params: new.params,
            nonce: new.nonce,
            hash,
            submitted_by: new.submitted_by,
            scheduled: new.scheduled,
            issued_at: new.issued_at,
            expires_at: new.expires_at,
            approval,
            approved_by: None,
            state: TaskState::Queued,
            attempts: 0,
            submitted_ms: now_ms,
            dispatched_ms: None,
            lease_until_ms: None,
            began_ms: None,
            ended_ms: None,
            cancelled_by: None,
            phase: None,
            code: None,
            detail: None,
            result: None,
            result_key: None,
        }
    }
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

/// What is on record before a task is submitted.
#[derive(Debug)]
pub struct Room {
    /// Tasks of its node that are not over.
    open: i64,
    /// The one that has its id.
    before: Option<TaskRow>,
}

impl Room {
    /// Whether no other task of the node is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }
}

/// Asks what a submission has to know.
pub fn ask_room<'q>(cluster: &'q ClusterId, node: &'q NodeId, task: &'q TaskId) -> Query<'q> {
    db::query(
        "SELECT room.open_tasks, t.* FROM
             (SELECT count(*) AS open_tasks FROM task WHERE cluster_id = ?1 AND node_id = ?2
              AND state IN ('queued', 'dispatched', 'running')) AS room
         LEFT JOIN task t ON t.cluster_id = ?1 AND t.task_id = ?3",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(task.as_str())
}

/// What [`ask_room`] says.
///
/// # Errors
/// If it cannot be read.
pub fn told_room(rows: &[Row]) -> Result<Room, StoreError> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let known: Option<String> = row.try_get("task_id")?;
    Ok(Room {
        open: row.try_get("open_tasks")?,
        before: known.map(|_| TaskRow::read(row)).transpose()?,
    })
}

/// What becomes of a submission where there is this room, which nobody else may take meanwhile; the task's row, as it is or
/// is to be.
///
/// # Errors
/// If the clock is wrong.
pub fn admit(
    new: NewTask,
    room: Room,
    (chain_id, contract): (&str, &str),
    now_ms: u64,
) -> Result<(Submitted, Option<TaskRow>), StoreError> {
    if let Some(before) = room.before {
        let same = before.node_id == new.node_id
            && before.kind == new.kind
            && before.params.get() == new.params.get();
        return Ok(if same {
            (Submitted::Known, Some(before))
        } else {
            (Submitted::Taken, None)
        });
    }
    if room.open >= MAX_OPEN {
        return Ok((Submitted::Full, None));
    }
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
    let (submitted, approval) = if new.kind.needs_approval() {
        (Submitted::Held, Approval::Waiting)
    } else {
        (Submitted::Queued, Approval::None)
    };
    Ok((submitted, Some(TaskRow::queued(new, hash, approval, now_ms))))
}

/// Puts a task on record that was admitted.
pub fn record(row: &TaskRow) -> Query<'static> {
    db::query(
        "INSERT INTO task (cluster_id, task_id, node_id, kind, params, nonce, hash, submitted_by, scheduled, issued_at_s,
         expires_at_s, submitted_ms, approval, state, attempts, dispatched_ms, lease_until_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(row.cluster_id.to_string())
    .bind(row.task_id.to_string())
    .bind(row.node_id.to_string())
    .bind(row.kind.as_str())
    .bind(row.params.get().to_owned())
    .bind(row.nonce.to_vec())
    .bind(row.hash.0.to_vec())
    .bind(row.submitted_by.clone())
    .bind(row.scheduled)
    .bind(int(row.issued_at.0))
    .bind(int(row.expires_at.0))
    .bind(int(row.submitted_ms))
    .bind(row.approval.as_str())
    .bind(row.state.as_str())
    .bind(int(row.attempts))
    .bind(row.dispatched_ms.map(int))
    .bind(row.lease_until_ms.map(int))
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
