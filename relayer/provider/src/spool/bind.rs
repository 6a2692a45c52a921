use std::collections::HashSet;
use std::sync::LazyLock;

use hpc_schema::code::Code;

use super::history::{self, End, EndedAs};
use super::mend;
use super::rows::Member;
use crate::db::many::{self, Sized};
use crate::db::{self, Conn, Row};
use crate::prove;
use crate::store::{StoreError, int, sequence};

/// Moves reports out of the queue into a transaction, in the order of its items. One that a newer report
/// has replaced meanwhile is bound all the same, for its bytes are in the transaction; the newer one waits.
///
/// A batch has hundreds of reports, and acceptance waits while this writes: few statements, whatever their number.
///
/// # Errors
/// If the store fails.
pub async fn bind(conn: &mut Conn, batch: u64, members: &[Member]) -> Result<(), StoreError> {
    let items: Vec<(u32, &Member)> = (0u32..).zip(members).collect();
    for (some, statement) in many::split(&items, &PUT_IN) {
        put_in(conn, batch, some, statement).await?;
    }
    db::query(
        "INSERT INTO heartbeat (cluster_id, node_id, epoch, sequence, heartbeat, received_at)
         SELECT w.cluster_id, w.node_id, w.epoch, w.sequence, w.heartbeat, w.received_at FROM batch_report b
         JOIN waiting w ON w.cluster_id = b.cluster_id AND w.node_id = b.node_id AND w.epoch = b.epoch
           AND w.sequence = b.sequence
         WHERE b.batch_id = ? AND w.heartbeat IS NOT NULL
         ON CONFLICT (cluster_id, node_id, epoch, sequence) DO UPDATE SET heartbeat = excluded.heartbeat,
           received_at = excluded.received_at, tx = NULL",
    )
    .bind(int(batch))
    .execute(&mut *conn)
    .await?;
    let replaced = replaced(conn, batch).await?;
    for (some, statement) in many::split(members, &TAKE_OUT) {
        let mut query = db::query(statement);
        for m in some {
            query = query
                .bind(m.cluster_id.as_str())
                .bind(m.node_id.as_str())
                .bind(int(m.epoch))
                .bind(i64::from(m.sequence));
        }
        query.execute(&mut *conn).await?;
    }
    for (item, m) in items.iter().filter(|(item, _)| replaced.contains(item)) {
        if !uncount(conn, m).await? {
            db::query("UPDATE batch_report SET recorded = 1 WHERE batch_id = ? AND item = ?")
                .bind(int(batch))
                .bind(i64::from(*item))
                .execute(&mut *conn)
                .await?;
        } else if let Some(full) = &m.full {
            prove::keep(&mut *conn, m.which(), full, m.received_at).await?;
        }
    }
    Ok(())
}

static PUT_IN: LazyLock<Vec<Sized>> = LazyLock::new(|| {
    many::sized(|rows| {
        format!(
            "INSERT INTO batch_report (batch_id, item, cluster_id, node_id, epoch, sequence, report, signature,
             queued_at, received_at, superseded_from, superseded_count, recorded) VALUES {}",
            many::joined(rows, "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)", ", ")
        )
    })
});

static TAKE_OUT: LazyLock<Vec<Sized>> = LazyLock::new(|| {
    many::sized(|rows| {
        let one = "(cluster_id = ? AND node_id = ? AND epoch = ? AND sequence = ?)";
        format!("DELETE FROM waiting WHERE {}", many::joined(rows, one, " OR "))
    })
});

async fn put_in(
    conn: &mut Conn,
    batch: u64,
    items: &[(u32, &Member)],
    statement: &'static str,
) -> Result<(), StoreError> {
    let mut query = db::query(statement);
    for (item, m) in items {
        query = query
            .bind(int(batch))
            .bind(i64::from(*item))
            .bind(m.cluster_id.as_str())
            .bind(m.node_id.as_str())
            .bind(int(m.epoch))
            .bind(i64::from(m.sequence))
            .bind(m.report.as_slice())
            .bind(m.signature.as_slice())
            .bind(int(m.queued_at))
            .bind(int(m.received_at))
            .bind(m.superseded_from.map(i64::from))
            .bind(int(m.superseded_count));
    }
    query.execute(conn).await?;
    Ok(())
}

/// The items that do not wait any more.
async fn replaced(conn: &mut Conn, batch: u64) -> Result<HashSet<u32>, StoreError> {
    let rows = db::query(
        "SELECT b.item FROM batch_report b WHERE b.batch_id = ? AND NOT EXISTS (SELECT 1 FROM waiting w
           WHERE w.cluster_id = b.cluster_id AND w.node_id = b.node_id AND w.epoch = b.epoch AND w.sequence = b.sequence)",
    )
    .bind(int(batch))
    .fetch_all(conn)
    .await?;
    rows.iter().map(|row| sequence(row, "item")).collect()
}

/// A newer report replaced `m` while its transaction was being signed, and counts it and all before it: they
/// are `m`'s to answer for again. False if `m` was not replaced but has ended, by a newer registration.
pub(super) async fn uncount(conn: &mut Conn, m: &Member) -> Result<bool, StoreError> {
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
    let query = db::query("SELECT * FROM batch_report WHERE batch_id = ? ORDER BY item").bind(int(batch));
    let mut all = Vec::new();
    let take = |row: &Row| {
        all.push(Member::read(row)?);
        Ok::<(), StoreError>(())
    };
    query.fetch_each(conn, take).await?;
    Ok(all)
}

/// Puts a report of a dead transaction back into the queue; if a newer one waits, that one's record takes
/// it in. One that a newer registration replaced ends, and one of which it is lost what was signed: so it is said how.
///
/// # Errors
/// If the store fails.
pub async fn return_member(conn: &mut Conn, m: &Member, now_ms: u64) -> Result<Option<End>, StoreError> {
    if m.recorded {
        return Ok(None);
    }
    let ended = match mend::held(&mut *conn, (m.cluster_id.as_str(), m.node_id.as_str()), now_ms).await? {
        None if m.is_lost() => Some(End::local(EndedAs::Refused, Some(Code::Unavailable))),
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
            prove::forget(&mut *conn, m.which()).await?;
            None
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
            .execute(&mut *conn)
            .await?;
            None
        }
        Some(_) => Some(End::local(EndedAs::Superseded, Some(Code::SupersededByRotation))),
    };
    if let Some(end) = &ended {
        history::end(conn, m, end, now_ms).await?;
    }
    Ok(ended)
}

/// A report of a transaction, by its item, is no longer bound to it.
///
/// # Errors
/// If the store fails.
pub async fn unbind_item(conn: &mut Conn, batch: u64, item: u32) -> Result<(), StoreError> {
    db::query("DELETE FROM batch_report WHERE batch_id = ? AND item = ?")
        .bind(int(batch))
        .bind(i64::from(item))
        .execute(conn)
        .await?;
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
