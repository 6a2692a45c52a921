use sqlx::SqliteConnection;

use super::history::{self, End, EndedAs};
use super::rows::Member;
use crate::store::{StoreError, int};

/// Moves reports out of the queue into a transaction, in the order of its items. One that a newer report
/// has replaced meanwhile is bound all the same, for its bytes are in the transaction; the newer one waits.
///
/// # Errors
/// If the store fails.
pub async fn bind(conn: &mut SqliteConnection, batch: u64, members: &[Member]) -> Result<(), StoreError> {
    for (item, m) in (0u32..).zip(members) {
        let removed = sqlx::query(
            "DELETE FROM waiting WHERE cluster_id = ? AND node_id = ? AND epoch = ? AND sequence = ?",
        )
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .bind(int(m.epoch))
        .bind(i64::from(m.sequence))
        .execute(&mut *conn)
        .await?;
        // Replaced meanwhile: the newer report's record counts it and all before it.
        let (from, count) = if removed.rows_affected() > 0 {
            (m.superseded_from, m.superseded_count)
        } else {
            (None, 0)
        };
        sqlx::query(
            "INSERT INTO batch_report (batch_id, item, cluster_id, node_id, epoch, sequence, report, signature,
             queued_at, received_at, superseded_from, superseded_count)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(int(batch))
        .bind(i64::from(item))
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .bind(int(m.epoch))
        .bind(i64::from(m.sequence))
        .bind(m.report.as_slice())
        .bind(m.signature.as_slice())
        .bind(int(m.queued_at))
        .bind(int(m.received_at))
        .bind(from.map(i64::from))
        .bind(int(count))
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// The reports of a transaction that has not been settled, in the order of its items.
///
/// # Errors
/// If the store fails.
pub async fn members(conn: &mut SqliteConnection, batch: u64) -> Result<Vec<Member>, StoreError> {
    let rows = sqlx::query("SELECT * FROM batch_report WHERE batch_id = ? ORDER BY item")
        .bind(int(batch))
        .fetch_all(conn)
        .await?;
    rows.iter().map(Member::read).collect()
}

/// Puts a report of a dead transaction back into the queue; if a newer one waits, that one's record takes
/// it in.
///
/// # Errors
/// If the store fails.
pub async fn return_member(conn: &mut SqliteConnection, m: &Member, now_ms: u64) -> Result<(), StoreError> {
    let newer = sqlx::query("SELECT * FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    match newer.as_ref().map(Member::read).transpose()? {
        None => {
            sqlx::query(
                "INSERT INTO waiting (cluster_id, node_id, epoch, sequence, report, signature, queued_at,
                 received_at, superseded_from, superseded_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(m.cluster_id.as_str())
            .bind(m.node_id.as_str())
            .bind(int(m.epoch))
            .bind(i64::from(m.sequence))
            .bind(m.report.as_slice())
            .bind(m.signature.as_slice())
            .bind(int(m.queued_at))
            .bind(int(m.received_at))
            .bind(m.superseded_from.map(i64::from))
            .bind(int(m.superseded_count))
            .execute(conn)
            .await?;
        }
        Some(newer) if newer.epoch == m.epoch => {
            // Already counted if it was replaced while the transaction was being signed.
            let counted = newer.superseded_from.is_some_and(|from| from <= m.sequence);
            let from = m.superseded_from.unwrap_or(m.sequence);
            let added = if counted {
                0
            } else {
                m.superseded_count.saturating_add(1)
            };
            sqlx::query(
                "UPDATE waiting SET superseded_from = min(coalesce(superseded_from, ?), ?),
                 superseded_count = superseded_count + ?, queued_at = min(queued_at, ?)
                 WHERE cluster_id = ? AND node_id = ?",
            )
            .bind(i64::from(from))
            .bind(i64::from(from))
            .bind(int(added))
            .bind(int(m.queued_at))
            .bind(m.cluster_id.as_str())
            .bind(m.node_id.as_str())
            .execute(conn)
            .await?;
        }
        Some(_) => history::end(conn, m, &End::local(EndedAs::Superseded, None), now_ms).await?,
    }
    Ok(())
}

/// The transaction is over: its reports are no longer bound to it.
///
/// # Errors
/// If the store fails.
pub async fn unbind(conn: &mut SqliteConnection, batch: u64) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM batch_report WHERE batch_id = ?")
        .bind(int(batch))
        .execute(conn)
        .await?;
    Ok(())
}
