use hpc_schema::id::{ClusterId, NodeId};

use super::row::Registration;
use crate::db::{self, Conn, Pool};
use crate::store::{StoreError, int};

/// Registrations that wait for the operator's approval, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn held(pool: &Pool) -> Result<Vec<Registration>, StoreError> {
    let rows = db::query(
        "SELECT r.* FROM registration r JOIN token t ON t.jti = r.jti
         WHERE r.held = 1 AND r.state = 'queued' AND t.revoked_at_s IS NULL ORDER BY r.id",
    )
    .fetch_all(pool)
    .await?;
    rows.iter().map(Registration::read).collect()
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
