use std::collections::HashSet;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::Serialize;

use crate::control;
use crate::db::{self, Conn, Pool};
use crate::identity::{Issued, PeerIdentity};
use crate::store::{Store, StoreError, int, opt_uint, text, uint};

/// Certificates of one node that count at the same time; the agent has one, and one that replaces it.
const MAX_PER_NODE: i64 = 64;

/// A certificate on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CertificateRow {
    /// Lower-case hex serial number.
    pub serial: String,
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// The registration that it counts for.
    pub epoch: Option<u64>,
    /// When it was issued; one of an outside CA: when it was first seen.
    pub issued_at: UnixSeconds,
    /// Until when it counts.
    pub not_after: UnixSeconds,
    /// When it was revoked.
    pub revoked_at: Option<UnixSeconds>,
}

/// Which certificates are meant.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// The one of this serial number.
    Serial(&'a str),
    /// All of a node.
    Node(&'a ClusterId, &'a NodeId),
}

/// Notes a certificate that is about to be handed out, and forgets those that no longer count. Of a node that asks for
/// one after the other, the oldest are forgotten: they are not many, and short-lived.
///
/// # Errors
/// If the store fails.
pub async fn record_certificate(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    epoch: u64,
    issued: &Issued,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    db::query("DELETE FROM certificate WHERE not_after_s < ?")
        .bind(int(now.0))
        .execute(&mut *conn)
        .await?;
    db::query(
        "DELETE FROM certificate WHERE revoked_at_s IS NULL AND serial IN (
           SELECT serial FROM certificate WHERE cluster_id = ? AND node_id = ? AND revoked_at_s IS NULL
           ORDER BY issued_at_s DESC LIMIT 9223372036854775807 OFFSET ?)",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(MAX_PER_NODE - 1)
    .execute(&mut *conn)
    .await?;
    db::query(
        "INSERT INTO certificate (serial, cluster_id, node_id, epoch, issued_at_s, not_after_s)
         VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(&issued.serial)
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(epoch))
    .bind(int(now.0))
    .bind(int(issued.not_after.0))
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes a certificate that an outside CA issued, when it is first seen, so that it can be listed and revoked like our own.
///
/// # Errors
/// If the store fails.
pub async fn record_outside(store: &Store, peer: &PeerIdentity, now: UnixSeconds) -> Result<(), StoreError> {
    let known = db::query("SELECT 1 FROM certificate WHERE serial = ?")
        .bind(&peer.serial)
        .fetch_optional(store.reader())
        .await?;
    if known.is_some() {
        return Ok(());
    }
    let mut tx = store.begin().await?;
    let issued = Issued {
        pem: String::new(),
        serial: peer.serial.clone(),
        not_after: peer.not_after,
    };
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    record_certificate(&mut tx, cluster, node, peer.epoch.unwrap_or(0), &issued, now).await?;
    tx.commit().await?;
    Ok(())
}

/// Revokes certificates; how many counted until now.
///
/// # Errors
/// If the store fails.
pub async fn revoke_certificates(
    conn: &mut Conn,
    which: Which<'_>,
    now: UnixSeconds,
) -> Result<u64, StoreError> {
    let (serial, cluster, node) = match which {
        Which::Serial(serial) => (Some(serial), None, None),
        Which::Node(cluster, node) => (None, Some(cluster.as_str()), Some(node.as_str())),
    };
    let done = db::query(
        "UPDATE certificate SET revoked_at_s = ?1 WHERE revoked_at_s IS NULL AND not_after_s >= ?1
         AND (?2 IS NULL OR serial = ?2) AND (?3 IS NULL OR (cluster_id = ?3 AND node_id = ?4))",
    )
    .bind(int(now.0))
    .bind(serial)
    .bind(cluster)
    .bind(node)
    .execute(&mut *conn)
    .await?;
    control::touch(conn).await?;
    Ok(done.rows_affected())
}

/// Serial numbers of the revoked certificates that would still count.
///
/// # Errors
/// If the store fails.
pub async fn revoked_serials(pool: &Pool) -> Result<HashSet<String>, StoreError> {
    let rows = db::query("SELECT serial FROM certificate WHERE revoked_at_s IS NOT NULL")
        .fetch_all(pool)
        .await?;
    rows.iter().map(|row| Ok(row.try_get("serial")?)).collect()
}

/// Certificates on record, those of one node or all, newest first.
///
/// # Errors
/// If the store fails.
pub async fn certificates(
    pool: &Pool,
    of: Option<&NodeId>,
    in_cluster: Option<&ClusterId>,
    limit: u32,
) -> Result<Vec<CertificateRow>, StoreError> {
    let rows = db::query(
        "SELECT * FROM certificate WHERE (?1 IS NULL OR node_id = ?1) AND (?2 IS NULL OR cluster_id = ?2)
         ORDER BY issued_at_s DESC, serial LIMIT ?3",
    )
    .bind(of.map(NodeId::as_str))
    .bind(in_cluster.map(ClusterId::as_str))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(CertificateRow {
                serial: row.try_get("serial")?,
                cluster_id: text(row, "cluster_id")?,
                node_id: text(row, "node_id")?,
                epoch: opt_uint(row, "epoch")?,
                issued_at: UnixSeconds(uint(row, "issued_at_s")?),
                not_after: UnixSeconds(uint(row, "not_after_s")?),
                revoked_at: opt_uint(row, "revoked_at_s")?.map(UnixSeconds),
            })
        })
        .collect()
}
