use std::collections::HashSet;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;

use crate::control;
use crate::db::{self, Conn, Pool};
use crate::identity::{Issued, PeerIdentity};
use crate::store::{StoreError, int, opt_uint, uint};

/// Certificates of one node that count at the same time; the agent has one, and one that replaces it.
const MAX_PER_NODE: u64 = 64;
/// Of a node's that have ended and are not revoked: more than count at a time of any but one that renews without need.
const ENDED_PER_NODE: u64 = 8;

/// How long one is kept beyond its end: by a clock that was ahead for a moment it has ended, and once that is right it counts
/// again. It stays revoked, or can be.
const KEPT_SECONDS: u64 = 400 * 86_400;
/// Rows of a node's ended ones that go at a time.
const MOST: i64 = 1000;

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

/// Notes a certificate that is about to be handed out, and forgets those whose time has been over for long. None that counts is
/// forgotten: nobody could revoke it any more.
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

/// Forgets certificates whose time has been over for long; says whether the node has as many as may count. Those of its earlier
/// registrations count no more.
pub(super) async fn no_room(
    conn: &mut Conn,
    (cluster, node, epoch): (&ClusterId, &NodeId, u64),
    now: UnixSeconds,
) -> Result<Option<NoRoom>, StoreError> {
    forget(&mut *conn, (cluster, node), now).await?;
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

/// Of the node's ended ones that are not revoked the last to have ended stay: those counted until the clock went ahead.
async fn forget(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    now: UnixSeconds,
) -> Result<(), StoreError> {
    db::query("DELETE FROM certificate WHERE not_after_s < ?")
        .bind(int(now.minus(KEPT_SECONDS).0))
        .execute(&mut *conn)
        .await?;
    db::query(
        "DELETE FROM certificate WHERE fingerprint IN (
           SELECT fingerprint FROM certificate
           WHERE cluster_id = ? AND node_id = ? AND revoked_at_s IS NULL AND not_after_s <= ?
           ORDER BY not_after_s DESC LIMIT ? OFFSET ?)",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(now.0))
    .bind(MOST)
    .bind(int(ENDED_PER_NODE))
    .execute(conn)
    .await?;
    Ok(())
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

/// Revokes certificates; how many of those on record counted until now. With all of a node, those too that have ended by this
/// clock, and those that an outside CA has issued until now and that nobody has seen.
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
    let rows = db::query(
        "UPDATE certificate SET revoked_at_s = ?1 WHERE revoked_at_s IS NULL
         AND ((fingerprint = ?2 AND not_after_s >= ?1) OR (cluster_id = ?3 AND node_id = ?4))
         RETURNING not_after_s",
    )
    .bind(int(now.0))
    .bind(fingerprint)
    .bind(cluster)
    .bind(node)
    .fetch_all(&mut *conn)
    .await?;
    let mut counted = 0;
    for row in &rows {
        counted += u64::from(uint(row, "not_after_s")? >= now.0);
    }
    if let Which::Node(cluster, node) = which {
        revoke_unseen(&mut *conn, (cluster, node), now).await?;
    }
    control::touch(conn).await?;
    Ok(counted)
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
