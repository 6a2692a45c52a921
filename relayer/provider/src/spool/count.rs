//! A node that has lost its count gets one that nobody has used.

use hpc_schema::id::{ClusterId, NodeId};

use crate::db;
use crate::store::{Store, StoreError, sequence};

/// The highest number of a node that may be in use: the highest accepted, `floor`, or what was given out here before. From
/// here on `block` more may be, durably, whether a heartbeat ever tells of them or not.
///
/// `block` bounds what is unknown here. A node may have signed that many numbers since it was told one that arrived nowhere,
/// and lose its disk again: they lie below what it is told next. One of which more heartbeats in a row than that were accepted
/// by nobody (64: 32 minutes at 30 s) could sign a number twice; gateway and chain take each number once all the same.
///
/// # Errors
/// If the store fails.
pub async fn give_out(
    store: &Store,
    cluster: &ClusterId,
    node: &NodeId,
    (floor, block): (u32, u32),
) -> Result<u32, StoreError> {
    let mut tx = store.begin().await?;
    // A node of which nothing was accepted yet has no epoch here: 0 is none.
    let row = db::query(
        "INSERT INTO intake (cluster_id, node_id, epoch, acked_sequence, highest_sequence, received_at)
         VALUES (?1, ?2, 0, 0, ?3, 0)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET
           highest_sequence = CASE WHEN intake.highest_sequence < ?4 THEN excluded.highest_sequence
             WHEN intake.highest_sequence > ?5 THEN ?6 ELSE intake.highest_sequence + ?7 END
         RETURNING highest_sequence",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(i64::from(floor.saturating_add(block)))
    .bind(i64::from(floor))
    .bind(i64::from(u32::MAX.saturating_sub(block)))
    .bind(i64::from(u32::MAX))
    .bind(i64::from(block))
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(sequence(&row, "highest_sequence")?.saturating_sub(block))
}
