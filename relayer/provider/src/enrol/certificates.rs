use std::collections::HashSet;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control;
use crate::db::{self, Conn, Pool};
use crate::identity::{Issued, PeerIdentity};
use crate::page::{Page, Window};
use crate::store::{Store, StoreError, int, opt_uint, text, uint};

/// Certificates of one node that count at the same time; the agent has one, and one that replaces it.
const MAX_PER_NODE: i64 = 64;

/// A certificate on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateRow {
    /// Lower-case hex SHA-256 of the certificate.
    pub fingerprint: String,
    /// Lower-case hex serial number; that of another CA's certificate may be the same.
    pub serial: String,
    /// The CA's name.
    pub issuer: String,
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
    /// The one of this fingerprint.
    Fingerprint(&'a str),
    /// All of a node.
    Node(&'a ClusterId, &'a NodeId),
}

/// Notes a certificate that is about to be handed out, and forgets those that no longer count. Of a node that asks for
/// one after the other, the oldest are forgotten: they are not many, and short-lived.
///
/// # Errors
/// If the store fails, or has a certificate of this fingerprint: what is not on record is not handed out.
pub async fn record_certificate(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    epoch: u64,
    issued: &Issued,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    make_room(&mut *conn, cluster, node, now).await?;
    insert(conn, (cluster, node, epoch), issued, now, "").await
}

async fn make_room(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    db::query("DELETE FROM certificate WHERE not_after_s < ?")
        .bind(int(now.0))
        .execute(&mut *conn)
        .await?;
    db::query(
        "DELETE FROM certificate WHERE revoked_at_s IS NULL AND fingerprint IN (
           SELECT fingerprint FROM certificate WHERE cluster_id = ? AND node_id = ? AND revoked_at_s IS NULL
           ORDER BY issued_at_s DESC LIMIT 9223372036854775807 OFFSET ?)",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(MAX_PER_NODE - 1)
    .execute(conn)
    .await?;
    Ok(())
}

async fn insert(
    conn: &mut Conn,
    (cluster, node, epoch): (&ClusterId, &NodeId, u64),
    issued: &Issued,
    now: UnixSeconds,
    conflict: &str,
) -> Result<(), StoreError> {
    db::query(format!(
        "INSERT INTO certificate (fingerprint, serial, issuer, cluster_id, node_id, epoch, issued_at_s, not_after_s)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?) {conflict}"
    ))
    .bind(&issued.fingerprint)
    .bind(&issued.serial)
    .bind(&issued.issuer)
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
/// One of before fingerprints were kept becomes known by its own.
///
/// # Errors
/// If the store fails.
pub async fn record_outside(store: &Store, peer: &PeerIdentity, now: UnixSeconds) -> Result<(), StoreError> {
    let known = db::query("SELECT 1 FROM certificate WHERE fingerprint = ?")
        .bind(&peer.fingerprint)
        .fetch_optional(store.reader())
        .await?;
    if known.is_some() {
        return Ok(());
    }
    let mut tx = store.begin().await?;
    let issued = Issued {
        pem: String::new(),
        serial: peer.serial.clone(),
        fingerprint: peer.fingerprint.clone(),
        issuer: peer.issuer.clone(),
        not_after: peer.not_after,
    };
    let of = (&peer.cluster_id, &peer.node_id, peer.epoch.unwrap_or(0));
    if !adopt(&mut tx, peer).await? {
        make_room(&mut tx, of.0, of.1, now).await?;
        // Its other connection may have been faster.
        insert(&mut tx, of, &issued, now, "ON CONFLICT (fingerprint) DO NOTHING").await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Gives a certificate that is on record by its serial number alone, as DER has it, its fingerprint; whether there was one.
/// One that is revoked stays as it is: its number refuses it, and another CA's of the same number must not take that away.
async fn adopt(conn: &mut Conn, peer: &PeerIdentity) -> Result<bool, StoreError> {
    let known = db::query(
        "SELECT 1 FROM certificate WHERE fingerprint = ?
         OR (fingerprint IN (?, ?) AND issuer = '' AND revoked_at_s IS NOT NULL)",
    )
    .bind(&peer.fingerprint)
    .bind(&peer.serial)
    .bind(format!("00{}", peer.serial))
    .fetch_optional(&mut *conn)
    .await?;
    if known.is_some() {
        return Ok(true);
    }
    let done = db::query(
        "UPDATE certificate SET fingerprint = ?, serial = ?, issuer = ?
         WHERE fingerprint IN (?, ?) AND issuer = '' AND revoked_at_s IS NULL
           AND cluster_id = ? AND node_id = ? AND not_after_s = ?",
    )
    .bind(&peer.fingerprint)
    .bind(&peer.serial)
    .bind(&peer.issuer)
    .bind(&peer.serial)
    .bind(format!("00{}", peer.serial))
    .bind(peer.cluster_id.as_str())
    .bind(peer.node_id.as_str())
    .bind(int(peer.not_after.0))
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
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
    let (fingerprint, cluster, node) = match which {
        Which::Fingerprint(fingerprint) => (Some(fingerprint), None, None),
        Which::Node(cluster, node) => (None, Some(cluster.as_str()), Some(node.as_str())),
    };
    let done = db::query(
        "UPDATE certificate SET revoked_at_s = ?1 WHERE revoked_at_s IS NULL AND not_after_s >= ?1
         AND (?2 IS NULL OR fingerprint = ?2) AND (?3 IS NULL OR (cluster_id = ?3 AND node_id = ?4))",
    )
    .bind(int(now.0))
    .bind(fingerprint)
    .bind(cluster)
    .bind(node)
    .execute(&mut *conn)
    .await?;
    control::touch(conn).await?;
    Ok(done.rows_affected())
}

/// Fingerprints of certificates of this serial number that count: of several CAs there may be several.
///
/// # Errors
/// If the store fails.
pub async fn of_serial(conn: &mut Conn, serial: &str, now: UnixSeconds) -> Result<Vec<String>, StoreError> {
    // As people write it: in capitals, with colons, with or without leading zeros.
    let serial: String = serial.chars().filter(|c| *c != ':').collect();
    let rows = db::query(
        "SELECT fingerprint FROM certificate
         WHERE ltrim(serial, '0') = ? AND revoked_at_s IS NULL AND not_after_s >= ? LIMIT 64",
    )
    .bind(serial.to_lowercase().trim_start_matches('0').to_owned())
    .bind(int(now.0))
    .fetch_all(conn)
    .await?;
    rows.iter().map(|row| Ok(row.try_get("fingerprint")?)).collect()
}

/// Fingerprints of the revoked certificates that would still count.
///
/// # Errors
/// If the store fails.
pub async fn revoked_fingerprints(pool: &Pool) -> Result<HashSet<String>, StoreError> {
    let rows = db::query("SELECT fingerprint FROM certificate WHERE revoked_at_s IS NOT NULL")
        .fetch_all(pool)
        .await?;
    rows.iter().map(|row| Ok(row.try_get("fingerprint")?)).collect()
}

/// Certificates on record, those of one node or all, newest first.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn certificates(
    pool: &Pool,
    of: Option<&NodeId>,
    in_cluster: Option<&ClusterId>,
    window: Window<'_>,
) -> Result<Page<CertificateRow>, StoreError> {
    let (time, [fingerprint]) = window.newest::<1>()?;
    let mut sql = "SELECT * FROM certificate WHERE (issued_at_s, fingerprint) < (?, ?)".to_owned();
    if of.is_some() {
        sql.push_str(" AND node_id = ?");
    }
    if in_cluster.is_some() {
        sql.push_str(" AND cluster_id = ?");
    }
    sql.push_str(" ORDER BY issued_at_s DESC, fingerprint DESC LIMIT ?");
    let mut query = db::query(sql).bind(int(time)).bind(fingerprint);
    for wanted in [of.map(NodeId::as_str), in_cluster.map(ClusterId::as_str)]
        .into_iter()
        .flatten()
    {
        query = query.bind(wanted);
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(|row| {
        Ok(CertificateRow {
            fingerprint: row.try_get("fingerprint")?,
            serial: row.try_get("serial")?,
            issuer: row.try_get("issuer")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            epoch: opt_uint(row, "epoch")?,
            issued_at: UnixSeconds(uint(row, "issued_at_s")?),
            not_after: UnixSeconds(uint(row, "not_after_s")?),
            revoked_at: opt_uint(row, "revoked_at_s")?.map(UnixSeconds),
        })
    });
    let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
    Ok(window.cut(rows, |c| format!("{}/{}", c.issued_at.0, c.fingerprint)))
}
