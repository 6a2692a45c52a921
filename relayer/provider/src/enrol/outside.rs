//! Certificates that an outside CA has issued: on record from when they are first seen.

use hpc_schema::time::UnixSeconds;

use super::certificates::{Which, insert, no_room, revoke_certificates};
use crate::db::{self, Conn, Row};
use crate::identity::{Issued, PeerIdentity};
use crate::store::{Store, StoreError, int, opt_uint, uint};

/// What becomes of an outside CA's certificate that a connection shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// It is on record.
    OnRecord {
        /// From when on: when it was first seen, by whichever gateway.
        since: UnixSeconds,
    },
    /// It is revoked; also one that is first seen, and was issued before all of its node's were.
    Revoked,
    /// So many of its node count that it has no place on record: nobody could revoke it.
    NoRoom,
}

/// Notes a certificate that an outside CA issued, when it is first seen, so that it can be listed and revoked like our own.
/// One of before fingerprints were kept becomes known by its own.
///
/// # Errors
/// If the store fails.
pub async fn record_outside(
    store: &Store,
    peer: &PeerIdentity,
    now: UnixSeconds,
) -> Result<Outside, StoreError> {
    let known = db::query("SELECT issued_at_s, revoked_at_s FROM certificate WHERE fingerprint = ?")
        .bind(&peer.fingerprint)
        .fetch_optional(store.reader())
        .await?;
    // Memory may not know yet what is revoked.
    if let Some(known) = as_recorded(known)? {
        return Ok(known);
    }
    let mut tx = store.begin().await?;
    let found = note(&mut tx, peer, now).await?;
    tx.commit().await?;
    Ok(found)
}

async fn note(conn: &mut Conn, peer: &PeerIdentity, now: UnixSeconds) -> Result<Outside, StoreError> {
    if let Some(known) = adopt(&mut *conn, peer).await? {
        return Ok(known);
    }
    let of = (&peer.cluster_id, &peer.node_id, peer.epoch.unwrap_or(0));
    let revoked = revoked_since(&mut *conn, peer).await?;
    if !revoked && no_room(&mut *conn, of, now).await?.is_some() {
        return Ok(Outside::NoRoom);
    }
    let issued = Issued {
        pem: String::new(),
        serial: peer.serial.clone(),
        fingerprint: peer.fingerprint.clone(),
        issuer: peer.issuer.clone(),
        not_after: peer.not_after,
    };
    // Its other connection may have been faster.
    insert(
        &mut *conn,
        of,
        &issued,
        now,
        "ON CONFLICT (fingerprint) DO NOTHING",
    )
    .await?;
    if revoked {
        revoke_certificates(conn, Which::Fingerprint(&peer.fingerprint), now).await?;
        return Ok(Outside::Revoked);
    }
    Ok(Outside::OnRecord { since: now })
}

/// What the record says, if it has the certificate.
fn as_recorded(row: Option<Row>) -> Result<Option<Outside>, StoreError> {
    let Some(row) = row else {
        return Ok(None);
    };
    let revoked = opt_uint(&row, "revoked_at_s")?.is_some();
    Ok(Some(if revoked {
        Outside::Revoked
    } else {
        Outside::OnRecord {
            since: UnixSeconds(uint(&row, "issued_at_s")?),
        }
    }))
}

/// Whether all certificates of the node were revoked since this one was issued, by its own word.
async fn revoked_since(conn: &mut Conn, peer: &PeerIdentity) -> Result<bool, StoreError> {
    let row = db::query("SELECT at_s FROM revoked_before WHERE cluster_id = ? AND node_id = ?")
        .bind(peer.cluster_id.as_str())
        .bind(peer.node_id.as_str())
        .fetch_optional(conn)
        .await?;
    let at = row.map(|row| uint(&row, "at_s")).transpose()?;
    Ok(at.is_some_and(|at| peer.not_before.0 <= at))
}

/// Gives a certificate that is on record by its serial number alone, as DER has it, its fingerprint; what the record says,
/// if it has one.
/// One that is revoked stays as it is: its number refuses it, and another CA's of the same number must not take that away.
async fn adopt(conn: &mut Conn, peer: &PeerIdentity) -> Result<Option<Outside>, StoreError> {
    let known = db::query(
        "SELECT issued_at_s, revoked_at_s FROM certificate WHERE fingerprint = ?
         OR (fingerprint IN (?, ?) AND issuer = '' AND revoked_at_s IS NOT NULL)
         ORDER BY revoked_at_s IS NULL LIMIT 1",
    )
    .bind(&peer.fingerprint)
    .bind(&peer.serial)
    .bind(peer.der_serial())
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(known) = as_recorded(known)? {
        return Ok(Some(known));
    }
    let adopted = db::query(
        "UPDATE certificate SET fingerprint = ?, serial = ?, issuer = ?
         WHERE fingerprint IN (?, ?) AND issuer = '' AND revoked_at_s IS NULL
           AND cluster_id = ? AND node_id = ? AND not_after_s = ?
         RETURNING issued_at_s, revoked_at_s",
    )
    .bind(&peer.fingerprint)
    .bind(&peer.serial)
    .bind(&peer.issuer)
    .bind(&peer.serial)
    .bind(peer.der_serial())
    .bind(peer.cluster_id.as_str())
    .bind(peer.node_id.as_str())
    .bind(int(peer.not_after.0))
    .fetch_optional(conn)
    .await?;
    as_recorded(adopted)
}
