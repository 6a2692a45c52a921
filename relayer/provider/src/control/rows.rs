use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::db::{self, Conn, Pool};
use crate::store::{StoreError, int, text, uint};

/// How often decisions have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Any decision.
    pub version: u64,
    /// Those that changed files.
    pub reload: u64,
}

/// A node whose traffic is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Disabled {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// Why, as the operator wrote it; the node is told.
    pub reason: String,
    /// Who decided.
    pub by: String,
    /// Since when.
    pub disabled_at: UnixSeconds,
}

/// The present version.
///
/// # Errors
/// If the store fails.
pub async fn version(pool: &Pool) -> Result<Version, StoreError> {
    let row = db::query("SELECT version, reload FROM control")
        .fetch_one(pool)
        .await?;
    Ok(Version {
        version: uint(&row, "version")?,
        reload: uint(&row, "reload")?,
    })
}

/// Tells the daemon that a decision has changed; part of the transaction that changes it.
///
/// # Errors
/// If the store fails.
pub async fn touch(conn: &mut Conn) -> Result<(), StoreError> {
    db::query("UPDATE control SET version = version + 1")
        .execute(conn)
        .await?;
    Ok(())
}

/// Tells the daemon that certificates or keys on disk have changed.
///
/// # Errors
/// If the store fails.
pub async fn touch_files(conn: &mut Conn) -> Result<(), StoreError> {
    db::query("UPDATE control SET version = version + 1, reload = reload + 1")
        .execute(conn)
        .await?;
    Ok(())
}

/// Refuses a node's traffic from now on; a second time, with another reason.
///
/// # Errors
/// If the store fails.
pub async fn disable(conn: &mut Conn, what: &Disabled) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO disabled (cluster_id, node_id, reason, by, disabled_at_s) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET reason = excluded.reason, by = excluded.by,
           disabled_at_s = excluded.disabled_at_s",
    )
    .bind(what.cluster_id.as_str())
    .bind(what.node_id.as_str())
    .bind(&what.reason)
    .bind(&what.by)
    .bind(int(what.disabled_at.0))
    .execute(&mut *conn)
    .await?;
    touch(conn).await
}

/// Takes a node's traffic again; whether it was disabled.
///
/// # Errors
/// If the store fails.
pub async fn enable(conn: &mut Conn, cluster: &ClusterId, node: &NodeId) -> Result<bool, StoreError> {
    let done = db::query("DELETE FROM disabled WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .execute(&mut *conn)
        .await?;
    touch(conn).await?;
    Ok(done.rows_affected() > 0)
}

/// The clusters in which a node of this id is disabled, on record or not.
///
/// # Errors
/// If the store fails.
pub async fn disabled_in(conn: &mut Conn, node: &NodeId) -> Result<Vec<ClusterId>, StoreError> {
    let rows = db::query("SELECT cluster_id FROM disabled WHERE node_id = ? ORDER BY cluster_id")
        .bind(node.as_str())
        .fetch_all(conn)
        .await?;
    rows.iter().map(|row| text(row, "cluster_id")).collect()
}

/// Every disabled node.
///
/// # Errors
/// If the store fails.
pub async fn disabled(pool: &Pool) -> Result<Vec<Disabled>, StoreError> {
    let rows = db::query("SELECT * FROM disabled ORDER BY cluster_id, node_id")
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Disabled {
                cluster_id: text(row, "cluster_id")?,
                node_id: text(row, "node_id")?,
                reason: row.try_get("reason")?,
                by: row.try_get("by")?,
                disabled_at: UnixSeconds(uint(row, "disabled_at_s")?),
            })
        })
        .collect()
}
