use std::collections::HashSet;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control;
use crate::db::{self, Conn, Pool};
use crate::identity::{Issued, PeerIdentity};
use crate::page::{Page, Window};
use crate::store::{StoreError, int, opt_uint, text, uint};

/// Certificates of one node that count at the same time; the agent has one, and one that replaces it.
const MAX_PER_NODE: u64 = 64;

/// How long one that is revoked is kept beyond its end: by a clock that was ahead for a moment it has ended, and once that is
/// right it would count again.
const REVOKED_KEPT_SECONDS: u64 = 400 * 86_400;

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

/// So many certificates of a node count that it gets no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// When the first of them ends.
    pub until: UnixSeconds,
}

/// Notes a certificate that is about to be handed out, and forgets those whose time is over; revoked ones much later. None that
/// counts is forgotten: nobody could revoke it any more.
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
) -> Result<Result<(), NoRoom>, StoreError> {
    let of = (cluster, node, epoch);
    if let Some(full) = no_room(&mut *conn, of, now).await? {
        return Ok(Err(full));
    }
    insert(conn, of, issued, now, "").await?;
    Ok(Ok(()))
}

/// Forgets certificates whose time is over; says whether the node has as many as may count. Those of its earlier registrations
/// count no more.
pub(super) async fn no_room(
    conn: &mut Conn,
    (cluster, node, epoch): (&ClusterId, &NodeId, u64),
    now: UnixSeconds,
) -> Result<Option<NoRoom>, StoreError> {
    db::query(
        "DELETE FROM certificate WHERE not_after_s < ?1 AND (revoked_at_s IS NULL OR not_after_s < ?2)",
    )
    .bind(int(now.0))
    .bind(int(now.minus(REVOKED_KEPT_SECONDS).0))
    .execute(&mut *conn)
    .await?;
    let row = db::query(
        "SELECT count(*) AS n, min(not_after_s) AS until_s FROM certificate
         WHERE cluster_id = ? AND node_id = ? AND epoch >= ? AND revoked_at_s IS NULL AND not_after_s > ?",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(epoch))
    .bind(int(now.0))
    .fetch_one(conn)
    .await?;
    if uint(&row, "n")? < MAX_PER_NODE {
        return Ok(None);
    }
    let until = opt_uint(&row, "until_s")?.unwrap_or(now.0);
    Ok(Some(NoRoom {
        until: UnixSeconds(until),
    }))
}

pub(super) async fn insert(
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

/// Revokes certificates; how many of those on record counted until now. With all of a node, those too that an outside CA has
/// issued until now and that nobody has seen.
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
    if let Which::Node(cluster, node) = which {
        revoke_unseen(&mut *conn, (cluster, node), now).await?;
    }
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

/// Whether this certificate is revoked; one of before fingerprints were kept is on record by its serial number, DER's zero
/// byte included.
///
/// # Errors
/// If the store fails.
pub async fn certificate_is_revoked(conn: &mut Conn, peer: &PeerIdentity) -> Result<bool, StoreError> {
    let row = db::query(
        "SELECT 1 FROM certificate WHERE fingerprint IN (?, ?, ?) AND revoked_at_s IS NOT NULL LIMIT 1",
    )
    .bind(&peer.fingerprint)
    .bind(&peer.serial)
    .bind(peer.der_serial())
    .fetch_optional(conn)
    .await?;
    Ok(row.is_some())
}

/// Fingerprints of the revoked certificates, also of those that have ended and are still on record.
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

/// Notes that all certificates of a node are revoked, those that were never seen among them.
async fn revoke_unseen(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    now: UnixSeconds,
) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO revoked_before (cluster_id, node_id, at_s) VALUES (?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET at_s = excluded.at_s
         WHERE excluded.at_s > revoked_before.at_s",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(now.0))
    .execute(conn)
    .await?;
    Ok(())
}
