use hpc_schema::code::Code;
use hpc_schema::task::TaskType;

use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// Word of a running task may come so long after its time is over.
const PATIENCE_MS: u64 = 3600 * 1000;

/// What has ended without a word.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Never given to a node in time.
    pub expired: u64,
    /// Given to a node that has not said how it ended.
    pub unknown: u64,
}

/// Ends tasks that nobody can begin any more, and those of which no word comes.
///
/// # Errors
/// If the store fails.
pub async fn keep(conn: &mut Conn, now_ms: u64) -> Result<Swept, StoreError> {
    let expired = db::query(
        "UPDATE task SET state = 'expired', code = 'task_expired', ended_ms = ?1
         WHERE state = 'queued' AND expires_at_s * 1000 < ?1",
    )
    .bind(int(now_ms))
    .execute(&mut *conn)
    .await?
    .rows_affected();
    let mut unknown = 0;
    for kind in TaskType::ALL {
        // It may have been begun at the last moment and run for as long as it may.
        let longest = kind
            .time_limit_seconds()
            .saturating_mul(1000)
            .saturating_add(PATIENCE_MS);
        let done = db::query(
            "UPDATE task SET state = 'failed', code = ?4, ended_ms = ?1, lease_until_ms = NULL,
                 detail = 'the node has not said how it ended; its word will still be taken'
             WHERE state IN ('dispatched', 'running') AND kind = ?3 AND expires_at_s * 1000 + ?2 < ?1
                 AND coalesce(lease_until_ms, 0) < ?1",
        )
        .bind(int(now_ms))
        .bind(int(longest))
        .bind(kind.as_str())
        .bind(Code::OutcomeUnknown.as_str())
        .execute(&mut *conn)
        .await?;
        unknown += done.rows_affected();
    }
    Ok(Swept { expired, unknown })
}

/// Forgets ended tasks that ended before `before_ms`.
///
/// # Errors
/// If the store fails.
pub async fn prune(conn: &mut Conn, before_ms: u64) -> Result<(), StoreError> {
    db::query(
        "DELETE FROM task WHERE ended_ms < ? AND state IN ('completed', 'failed', 'expired', 'cancelled')",
    )
    .bind(int(before_ms))
    .execute(&mut *conn)
    .await?;
    db::query(
        "DELETE FROM task_progress WHERE received_ms < ? AND NOT EXISTS
         (SELECT 1 FROM task t WHERE t.cluster_id = task_progress.cluster_id AND t.task_id = task_progress.task_id)",
    )
    .bind(int(before_ms))
    .execute(conn)
    .await?;
    Ok(())
}
