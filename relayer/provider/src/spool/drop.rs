use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use super::history::{self, End, EndedAs};
use super::rows::{self, Member};
use crate::db::{self, Conn, Row};
use crate::store::{StoreError, int};

/// Ends a report that waits, without sending it, if it is still this one; whether it was.
///
/// # Errors
/// If the store fails.
pub async fn drop_waiting(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    sequence: u32,
    end: &End,
    now_ms: u64,
) -> Result<bool, StoreError> {
    let row =
        db::query("DELETE FROM waiting WHERE cluster_id = ? AND node_id = ? AND sequence = ? RETURNING *")
            .bind(cluster.as_str())
            .bind(node.as_str())
            .bind(i64::from(sequence))
            .fetch_optional(&mut *conn)
            .await?;
    let Some(row) = row else { return Ok(false) };
    ended(conn, &row, end, now_ms).await?;
    Ok(true)
}

/// A row that is gone ends on record, as far as it can be read.
async fn ended(conn: &mut Conn, row: &Row, end: &End, now_ms: u64) -> Result<(), StoreError> {
    match Member::left(row) {
        Some(member) => history::end(conn, &member, end, now_ms).await,
        None => {
            let (cluster, node) = rows::key(row).unwrap_or_default();
            tracing::error!(
                "a report of {node:?} in {cluster:?} that waited could not be read and has no end on record; look at the disk, and restore a backup if there are more"
            );
            Ok(())
        }
    }
}

/// A newer registration counts: a waiting report of an older one ends, and the count of sequences begins anew.
///
/// # Errors
/// If the store fails.
pub async fn supersede_older(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    epoch: u64,
    now_ms: u64,
) -> Result<(), StoreError> {
    let row = db::query("DELETE FROM waiting WHERE cluster_id = ? AND node_id = ? AND epoch < ? RETURNING *")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .bind(int(epoch))
        .fetch_optional(&mut *conn)
        .await?;
    if let Some(row) = row {
        let end = End::local(EndedAs::Superseded, Some(Code::SupersededByRotation));
        ended(&mut *conn, &row, &end, now_ms).await?;
    }
    db::query(
        "UPDATE intake SET epoch = ?, acked_sequence = 0 WHERE cluster_id = ? AND node_id = ? AND epoch < ?",
    )
    .bind(int(epoch))
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(epoch))
    .execute(conn)
    .await?;
    Ok(())
}
