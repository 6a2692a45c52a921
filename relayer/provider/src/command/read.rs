use hpc_schema::id::{ClusterId, NodeId};

use super::row::CommandRow;
use crate::db::{self, Pool};
use crate::page::{Page, Window};
use crate::store::{StoreError, int};

/// Orders kept in memory at most, over all nodes.
const MAX_LOADED: i64 = 100_000;

/// Every order that waits, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn pending(pool: &Pool) -> Result<Vec<CommandRow>, StoreError> {
    let rows = db::query("SELECT * FROM command WHERE state = 'pending' ORDER BY issued_at_s, place LIMIT ?")
        .bind(MAX_LOADED)
        .fetch_all(pool)
        .await?;
    rows.iter().map(CommandRow::read).collect()
}

/// The orders of one node that wait, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn pending_of(
    pool: &Pool,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Vec<CommandRow>, StoreError> {
    let rows = db::query(
        "SELECT * FROM command WHERE cluster_id = ? AND node_id = ? AND state = 'pending' ORDER BY issued_at_s, place",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .fetch_all(pool)
    .await?;
    rows.iter().map(CommandRow::read).collect()
}

/// Orders, newest first: of one cluster, one node, or all.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn history(
    pool: &Pool,
    cluster: Option<&ClusterId>,
    node: Option<&NodeId>,
    window: Window<'_>,
) -> Result<Page<CommandRow>, StoreError> {
    let (time, [id]) = window.newest::<1>()?;
    let mut sql = "SELECT * FROM command WHERE (issued_at_s, command_id) < (?, ?)".to_owned();
    if cluster.is_some() {
        sql.push_str(" AND cluster_id = ?");
    }
    if node.is_some() {
        sql.push_str(" AND node_id = ?");
    }
    sql.push_str(" ORDER BY issued_at_s DESC, command_id DESC LIMIT ?");
    let mut query = db::query(sql).bind(int(time)).bind(id);
    for wanted in [cluster.map(ClusterId::as_str), node.map(NodeId::as_str)]
        .into_iter()
        .flatten()
    {
        query = query.bind(wanted);
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(CommandRow::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |c: &CommandRow| {
        format!("{}/{}", c.issued_at.0, c.command_id)
    }))
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
