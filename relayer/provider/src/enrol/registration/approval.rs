use hpc_schema::id::{ClusterId, NodeId};

use super::row::Registration;
use crate::db::{self, Conn, Pool};
use crate::page::{BadCursor, Page, Window};
use crate::store::{StoreError, int};

/// Registrations that wait for the operator's approval, oldest first: of this node, or all.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn held(
    pool: &Pool,
    node: Option<&NodeId>,
    window: Window<'_>,
) -> Result<Page<Registration>, StoreError> {
    let [after] = window.texts::<1>()?;
    let after: u64 = match after {
        "" => 0,
        id => id.parse().map_err(|_| BadCursor)?,
    };
    let of = node.map_or("", |_| " AND r.node_id = ?");
    let mut query = db::query(format!(
        "SELECT r.* FROM registration r JOIN token t ON t.jti = r.jti
         WHERE r.held = 1 AND r.state = 'queued' AND t.revoked_at_s IS NULL AND r.id > ?{of} ORDER BY r.id LIMIT ?"
    ))
    .bind(int(after));
    if let Some(node) = node {
        query = query.bind(node.as_str());
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(Registration::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |r: &Registration| r.id.to_string()))
}

/// Lets a node's registration go on; whether one waited.
///
/// # Errors
/// If the store fails.
pub async fn approve(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    now_ms: u64,
) -> Result<bool, StoreError> {
    let done = db::query(
        "UPDATE registration SET held = 0, updated_at = ?
         WHERE cluster_id = ? AND node_id = ? AND held = 1 AND state = 'queued'",
    )
    .bind(int(now_ms))
    .bind(cluster.as_str())
    .bind(node.as_str())
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}
