use hpc_schema::id::{ClusterId, NodeId};

use super::row::CommandRow;
use crate::db::{self, Pool};
use crate::store::StoreError;

/// Orders kept in memory at most, over all nodes.
const MAX_LOADED: i64 = 100_000;

/// Every order that waits, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn pending(pool: &Pool) -> Result<Vec<CommandRow>, StoreError> {
    let rows =
        db::query("SELECT * FROM command WHERE state = 'pending' ORDER BY issued_at_s, command_id LIMIT ?")
            .bind(MAX_LOADED)
            .fetch_all(pool)
            .await?;
    rows.iter().map(CommandRow::read).collect()
}

/// Orders, newest first: of one cluster, one node, or all.
///
/// # Errors
/// If the store fails.
pub async fn history(
    pool: &Pool,
    cluster: Option<&ClusterId>,
    node: Option<&NodeId>,
    limit: u32,
) -> Result<Vec<CommandRow>, StoreError> {
    let rows = db::query(
        "SELECT * FROM command WHERE (?1 IS NULL OR cluster_id = ?1) AND (?2 IS NULL OR node_id = ?2)
         ORDER BY issued_at_s DESC, command_id LIMIT ?3",
    )
    .bind(cluster.map(ClusterId::as_str))
    .bind(node.map(NodeId::as_str))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter().map(CommandRow::read).collect()
}

/// One order.
///
/// # Errors
/// If the store fails.
pub async fn find(pool: &Pool, id: &str) -> Result<Option<CommandRow>, StoreError> {
    let row = db::query("SELECT * FROM command WHERE command_id = ?")
        .bind(id)
        .fetch_optional(pool)
        .await?;
    row.as_ref().map(CommandRow::read).transpose()
}
