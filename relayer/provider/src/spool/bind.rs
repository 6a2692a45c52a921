use hpc_schema::code::Code;

use super::history::{self, End, EndedAs};
use super::rows::Member;
use crate::db::{self, Conn};
use crate::prove;
use crate::store::{StoreError, int};

/// Moves reports out of the queue into a transaction, in the order of its items. One that a newer report
/// has replaced meanwhile is bound all the same, for its bytes are in the transaction; the newer one waits.
///
/// # Errors
/// If the store fails.
pub async fn bind(conn: &mut Conn, batch: u64, members: &[Member]) -> Result<(), StoreError> {
    for (item, m) in (0u32..).zip(members) {
        let removed = db::query(
            "DELETE FROM waiting WHERE cluster_id = ? AND node_id = ? AND epoch = ? AND sequence = ?",
        )
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .bind(int(m.epoch))
        .bind(i64::from(m.sequence))
        .execute(&mut *conn)
        .await?;
        let recorded = removed.rows_affected() == 0 && !uncount(conn, m).await?;
        db::query(
            "INSERT INTO batch_report (batch_id, item, cluster_id, node_id, epoch, sequence, report, signature,
             queued_at, received_at, superseded_from, superseded_count, recorded)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
        .bind(m.superseded_from.map(i64::from))
        .bind(int(m.superseded_count))
        .bind(recorded)
        .execute(&mut *conn)
        .await?;
        if let (Some(full), false) = (&m.full, recorded) {
            prove::keep(&mut *conn, m.which(), full, m.received_at).await?;
        }
    }
    Ok(())
}

/// A newer report replaced `m` while its transaction was being signed, and counts it and all before it: they
/// are `m`'s to answer for again. False if `m` was not replaced but has ended, by a newer registration.
async fn uncount(conn: &mut Conn, m: &Member) -> Result<bool, StoreError> {
    let mine = int(m.superseded_count.saturating_add(1));
    let done = db::query(
        "UPDATE waiting SET superseded_count = superseded_count - ?1,
         superseded_from = CASE WHEN superseded_count > ?1 THEN ?2 END
         WHERE cluster_id = ?3 AND node_id = ?4 AND epoch = ?5 AND superseded_count >= ?1",
    )
    .bind(mine)
    // A bound, not a sequence that need exist: numbers have gaps.
    .bind(i64::from(m.sequence) + 1)
    .bind(m.cluster_id.as_str())
    .bind(m.node_id.as_str())
    .bind(int(m.epoch))
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The reports of a transaction that has not been settled, in the order of its items.
///
/// # Errors
/// If the store fails.
pub async fn members(conn: &mut Conn, batch: u64) -> Result<Vec<Member>, StoreError> {
    let rows = db::query("SELECT * FROM batch_report WHERE batch_id = ? ORDER BY item")
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
pub async fn return_member(conn: &mut Conn, m: &Member, now_ms: u64) -> Result<(), StoreError> {
    if m.recorded {
        return Ok(());
    }
    let newer = db::query("SELECT * FROM waiting WHERE cluster_id = ? AND node_id = ?")
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    match newer.as_ref().map(Member::read).transpose()? {
        None => {
            db::query(
                "INSERT INTO waiting (cluster_id, node_id, epoch, sequence, report, signature, queued_at,
                 received_at, superseded_from, superseded_count, heartbeat)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, (SELECT heartbeat FROM heartbeat
                   WHERE cluster_id = ?1 AND node_id = ?2 AND epoch = ?3 AND sequence = ?4))",
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
            .execute(&mut *conn)
            .await?;
            prove::forget(conn, m.which()).await?;
        }
        Some(newer) if newer.epoch == m.epoch => {
            prove::forget(&mut *conn, m.which()).await?;
            // Its end is the newer one's.
            let from = m.superseded_from.unwrap_or(m.sequence);
            let added = m.superseded_count.saturating_add(1);
            db::query(
                "UPDATE waiting SET superseded_from = CASE WHEN superseded_from < ?1 THEN superseded_from ELSE ?1 END,
                 superseded_count = superseded_count + ?2,
                 queued_at = CASE WHEN queued_at < ?3 THEN queued_at ELSE ?3 END
                 WHERE cluster_id = ?4 AND node_id = ?5",
            )
            .bind(i64::from(from))
            .bind(int(added))
            .bind(int(m.queued_at))
            .bind(m.cluster_id.as_str())
            .bind(m.node_id.as_str())
            .execute(conn)
            .await?;
        }
        Some(_) => {
            history::end(
                conn,
                m,
                &End::local(EndedAs::Superseded, Some(Code::SupersededByRotation)),
                now_ms,
            )
            .await?;
        }
    }
    Ok(())
}

/// The transaction is over: its reports are no longer bound to it.
///
/// # Errors
/// If the store fails.
pub async fn unbind(conn: &mut Conn, batch: u64) -> Result<(), StoreError> {
    db::query("DELETE FROM batch_report WHERE batch_id = ?")
        .bind(int(batch))
        .execute(conn)
        .await?;
    Ok(())
}
