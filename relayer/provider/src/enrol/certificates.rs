use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use sqlx::SqliteConnection;

use crate::identity::Issued;
use crate::store::{StoreError, int};

/// Notes a certificate that is about to be handed out, and forgets those that no longer count.
///
/// # Errors
/// If the store fails.
pub async fn record_certificate(
    conn: &mut SqliteConnection,
    cluster: &ClusterId,
    node: &NodeId,
    issued: &Issued,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM certificate WHERE not_after_s < ?")
        .bind(int(now.0))
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "INSERT INTO certificate (serial, cluster_id, node_id, issued_at_s, not_after_s) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&issued.serial)
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(now.0))
    .bind(int(issued.not_after.0))
    .execute(&mut *conn)
    .await?;
    Ok(())
}
