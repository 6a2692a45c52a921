use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{MAX_PROGRESS_MESSAGE, ProgressRequest, TaskHash};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::db::{self, Conn, Pool};
use crate::store::{StoreError, bytes, int, uint};

/// Events kept of one task.
pub const MAX_EVENTS: i64 = 256;

/// How far a task was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressRow {
    /// Its place.
    pub n: u64,
    /// Name of the phase.
    pub phase: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When, by the node's clock.
    pub at: String,
    /// UNIX milliseconds here.
    pub received_ms: u64,
}

/// What became of a word of how far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is noted.
    Yes,
    /// Another task has this id.
    OtherTask,
    /// The node has no such task under way.
    NotUnderWay,
}

/// Notes that a task is under way, and how far; its lease begins anew.
///
/// # Errors
/// If the store fails.
pub async fn note(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    id: &TaskId,
    hash: TaskHash,
    progress: &ProgressRequest,
    (lease_ms, now_ms): (u64, u64),
) -> Result<Noted, StoreError> {
    let printable = |text: &str| -> String {
        let mut out: String = text.chars().filter(|c| !c.is_control()).collect();
        while out.len() > MAX_PROGRESS_MESSAGE {
            out.pop();
        }
        out
    };
    let phase = printable(&progress.phase);
    let message = progress.message.as_deref().map(printable);
    let row = db::query("SELECT phase, hash FROM task WHERE cluster_id = ? AND task_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(id.as_str())
        .bind(node.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    let Some(row) = row else {
        return Ok(Noted::NotUnderWay);
    };
    if TaskHash(bytes(&row, "hash")?) != hash {
        return Ok(Noted::OtherTask);
    }
    let before: Option<String> = row.try_get("phase")?;
    let done = db::query(
        "UPDATE task SET state = 'running', phase = ?, began_ms = coalesce(began_ms, ?), lease_until_ms = ?
         WHERE cluster_id = ? AND task_id = ? AND node_id = ? AND hash = ? AND state IN ('dispatched', 'running')",
    )
    .bind(&phase)
    .bind(int(now_ms))
    .bind(int(now_ms.saturating_add(lease_ms)))
    .bind(cluster.as_str())
    .bind(id.as_str())
    .bind(node.as_str())
    .bind(hash.0.as_slice())
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(Noted::NotUnderWay);
    }
    // A word that only keeps the lease is no event.
    if before.as_deref() == Some(phase.as_str()) && message.is_none() {
        return Ok(Noted::Yes);
    }
    db::query(
        "INSERT INTO task_progress (cluster_id, task_id, n, phase, message, at, received_ms)
         SELECT ?1, ?2, count(*), ?3, ?4, ?5, ?6 FROM task_progress WHERE cluster_id = ?1 AND task_id = ?2
         HAVING count(*) < ?7",
    )
    .bind(cluster.as_str())
    .bind(id.as_str())
    .bind(&phase)
    .bind(message)
    .bind(progress.at.as_str())
    .bind(int(now_ms))
    .bind(MAX_EVENTS)
    .execute(conn)
    .await?;
    Ok(Noted::Yes)
}

/// How far a task was, oldest first, from its n-th event on.
///
/// # Errors
/// If the store fails.
pub async fn progress_of(
    pool: &Pool,
    cluster: &ClusterId,
    id: &TaskId,
    from: u64,
) -> Result<Vec<ProgressRow>, StoreError> {
    let rows =
        db::query("SELECT * FROM task_progress WHERE cluster_id = ? AND task_id = ? AND n >= ? ORDER BY n")
            .bind(cluster.as_str())
            .bind(id.as_str())
            .bind(int(from))
            .fetch_all(pool)
            .await?;
    rows.iter()
        .map(|row| {
            Ok(ProgressRow {
                n: uint(row, "n")?,
                phase: row.try_get("phase")?,
                message: row.try_get("message")?,
                at: row.try_get("at")?,
                received_ms: uint(row, "received_ms")?,
            })
        })
        .collect()
}
