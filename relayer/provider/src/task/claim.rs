use hpc_schema::id::{ClusterId, NodeId, TaskId};

use super::row::TaskRow;
use crate::db::{self, Conn, Pool, Query, Row};
use crate::store::{StoreError, int, text};

/// What a node is given at once.
const AT_ONCE: i64 = 4;
/// A cancellation that nobody answers is told again after so long.
const TOLD_AGAIN_MS: u64 = 10_000;

/// What a node that waits is given.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Tasks to begin, or to say a word of.
    pub tasks: Vec<TaskRow>,
    /// Tasks that are taken back.
    pub cancel: Vec<TaskRow>,
}

impl Claimed {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.cancel.is_empty()
    }
}

/// What takes all that waits for the node: its tasks in one statement, so that no two connections get the same, and in
/// another the cancellations that it has not heard of. `per_node` of its tasks may be under way; one whose lease is over is
/// given again.
pub fn ask_claim<'q>(
    (cluster, node): (&'q ClusterId, &'q NodeId),
    per_node: u32,
    lease_ms: u64,
    now_ms: u64,
) -> [Query<'q>; 2] {
    let tasks = db::query(
        "UPDATE task SET state = CASE state WHEN 'queued' THEN 'dispatched' ELSE state END,
             attempts = attempts + 1, lease_until_ms = ?5, dispatched_ms = coalesce(dispatched_ms, ?4)
         WHERE cluster_id = ?1 AND task_id IN (
             SELECT task_id FROM (
                 SELECT task_id, submitted_ms, state,
                        row_number() OVER (PARTITION BY state = 'queued' ORDER BY submitted_ms, task_id) AS place
                 FROM task WHERE cluster_id = ?1 AND node_id = ?2
                 AND ((state = 'queued' AND approval <> 'waiting' AND expires_at_s * 1000 >= ?4)
                      OR (state IN ('dispatched', 'running') AND lease_until_ms <= ?4))) AS due
             WHERE state <> 'queued' OR place <= ?3 - (SELECT count(*) FROM task WHERE cluster_id = ?1 AND node_id = ?2
                                                       AND state IN ('dispatched', 'running'))
             ORDER BY submitted_ms, task_id LIMIT ?6)
         RETURNING *",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(i64::from(per_node))
    .bind(int(now_ms))
    .bind(int(now_ms.saturating_add(lease_ms)))
    .bind(AT_ONCE);
    let cancelled = db::query(
        "UPDATE task SET cancel_told_ms = ?3 WHERE cluster_id = ?1 AND node_id = ?2
         AND state IN ('dispatched', 'running') AND cancelled_by IS NOT NULL
         AND (cancel_told_ms IS NULL OR cancel_told_ms <= ?4) RETURNING *",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(now_ms))
    .bind(int(now_ms.saturating_sub(TOLD_AGAIN_MS)));
    [tasks, cancelled]
}

/// What [`ask_claim`] says.
///
/// # Errors
/// If it cannot be read.
pub fn told_claim(tasks: &[Row], cancelled: &[Row]) -> Result<Claimed, StoreError> {
    let read = |rows: &[Row]| rows.iter().map(TaskRow::read).collect::<Result<Vec<_>, _>>();
    let mut claimed = Claimed {
        tasks: read(tasks)?,
        cancel: read(cancelled)?,
    };
    // In no order as they come.
    claimed
        .tasks
        .sort_by(|a, b| (a.submitted_ms, &a.task_id).cmp(&(b.submitted_ms, &b.task_id)));
    Ok(claimed)
}

/// Puts a task that was handed over to nobody back into the queue; whether it was such a one.
///
/// # Errors
/// If the store fails.
pub async fn give_back(conn: &mut Conn, cluster: &ClusterId, id: &TaskId) -> Result<bool, StoreError> {
    // Other gateways are told by the approval, whatever it is. One that a node has had since is not touched.
    let done = db::query(
        "UPDATE task SET state = 'queued', attempts = 0, dispatched_ms = NULL, lease_until_ms = NULL, approval = approval
         WHERE cluster_id = ? AND task_id = ? AND state = 'dispatched' AND attempts = 1 AND cancelled_by IS NULL",
    )
    .bind(cluster.as_str())
    .bind(id.as_str())
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Nodes for which something waits.
///
/// # Errors
/// If the store fails.
pub async fn waiting_nodes(pool: &Pool, now_ms: u64) -> Result<Vec<(ClusterId, NodeId)>, StoreError> {
    let rows = db::query(
        "SELECT DISTINCT cluster_id, node_id FROM task
         WHERE (state = 'queued' AND approval <> 'waiting')
            OR (state IN ('dispatched', 'running') AND (lease_until_ms <= ?1
                OR (cancelled_by IS NOT NULL AND coalesce(cancel_told_ms, 0) <= ?2)))",
    )
    .bind(int(now_ms))
    .bind(int(now_ms.saturating_sub(TOLD_AGAIN_MS)))
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| Ok((text(row, "cluster_id")?, text(row, "node_id")?)))
        .collect()
}

/// Whether something waits for this node.
///
/// # Errors
/// If the store fails.
pub async fn waits_for(
    pool: &Pool,
    (cluster, node): (&ClusterId, &NodeId),
    now_ms: u64,
) -> Result<bool, StoreError> {
    let row = db::query(
        "SELECT 1 FROM task WHERE cluster_id = ?1 AND node_id = ?2 AND
         ((state = 'queued' AND approval <> 'waiting') OR (state IN ('dispatched', 'running')
          AND (lease_until_ms <= ?3 OR (cancelled_by IS NOT NULL AND coalesce(cancel_told_ms, 0) <= ?4)))) LIMIT 1",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(now_ms))
    .bind(int(now_ms.saturating_sub(TOLD_AGAIN_MS)))
    .fetch_optional(pool)
    .await?;
    Ok(row.is_some())
}
