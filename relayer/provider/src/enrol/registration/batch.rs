use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;

use super::row::Registration;
use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// Registrations that wait to be signed, oldest first; none whose token has been taken back or has
/// expired meanwhile: what is on chain then would get no certificate. Nor one of a node that is disabled, should it have come
/// in the moment of that decision.
///
/// # Errors
/// If the store fails.
pub async fn queued(conn: &mut Conn, now: UnixSeconds, limit: u32) -> Result<Vec<Registration>, StoreError> {
    let rows = db::query(
        "SELECT r.* FROM registration r JOIN token t ON t.jti = r.jti
         WHERE r.state = 'queued' AND r.held = 0 AND t.revoked_at_s IS NULL AND t.expires_at_s > ?
           AND NOT EXISTS (SELECT 1 FROM disabled d WHERE d.cluster_id = r.cluster_id AND d.node_id = r.node_id)
         ORDER BY r.id LIMIT ?",
    )
    .bind(int(now.0))
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    rows.iter().map(Registration::read).collect()
}

/// Binds registrations to a transaction, in order. False if one does not wait any more, as it was called back while the
/// transaction was made: then the caller commits nothing.
///
/// # Errors
/// If the store fails.
pub async fn bind_to_batch(
    conn: &mut Conn,
    batch: u64,
    ids: &[u64],
    now_ms: u64,
) -> Result<bool, StoreError> {
    for (item, id) in (0u32..).zip(ids) {
        db::query("INSERT INTO batch_registration (batch_id, item, registration_id) VALUES (?, ?, ?)")
            .bind(int(batch))
            .bind(i64::from(item))
            .bind(int(*id))
            .execute(&mut *conn)
            .await?;
        // By the queue's own rule: what was called back may have come again meanwhile.
        let bound = db::query(
            "UPDATE registration SET state = 'sent', updated_at = ? WHERE id = ? AND state = 'queued' AND held = 0
               AND NOT EXISTS (SELECT 1 FROM disabled d
                 WHERE d.cluster_id = registration.cluster_id AND d.node_id = registration.node_id)",
        )
        .bind(int(now_ms))
        .bind(int(*id))
        .execute(&mut *conn)
        .await?;
        if bound.rows_affected() == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The registrations of a transaction that are not done, in order.
///
/// # Errors
/// If the store fails.
pub async fn in_batch(conn: &mut Conn, batch: u64) -> Result<Vec<Registration>, StoreError> {
    let rows = db::query(
        "SELECT r.* FROM batch_registration b JOIN registration r ON r.id = b.registration_id
         WHERE b.batch_id = ? ORDER BY b.item",
    )
    .bind(int(batch))
    .fetch_all(conn)
    .await?;
    rows.iter().map(Registration::read).collect()
}

/// The transaction is over: its registrations are no longer bound to it. Those whose token was taken back meanwhile, or whose
/// node was disabled, do not wait again.
///
/// # Errors
/// If the store fails.
pub async fn release(conn: &mut Conn, batch: u64, now_ms: u64) -> Result<(), StoreError> {
    db::query(
        "UPDATE registration SET state = 'queued', updated_at = ? WHERE state = 'sent'
         AND id IN (SELECT registration_id FROM batch_registration WHERE batch_id = ?)",
    )
    .bind(int(now_ms))
    .bind(int(batch))
    .execute(&mut *conn)
    .await?;
    end_revoked(&mut *conn, now_ms).await?;
    db::query(format!(
        "{END_DISABLED} AND id IN (SELECT registration_id FROM batch_registration WHERE batch_id = ?)"
    ))
    .bind(i64::from(Code::NodeDisabled.number()))
    .bind(int(now_ms))
    .bind(int(batch))
    .execute(&mut *conn)
    .await?;
    db::query("DELETE FROM batch_registration WHERE batch_id = ?")
        .bind(int(batch))
        .execute(conn)
        .await?;
    Ok(())
}

/// Ends the registrations that wait and whose token has been taken back.
///
/// # Errors
/// If the store fails.
pub(in crate::enrol) async fn end_revoked(conn: &mut Conn, now_ms: u64) -> Result<(), StoreError> {
    db::query(
        "UPDATE registration SET state = 'refused', code = ?, detail = 'the token has been revoked', updated_at = ?
         WHERE state = 'queued' AND jti IN (SELECT jti FROM token WHERE revoked_at_s IS NOT NULL)",
    )
    .bind(i64::from(Code::TokenInvalid.number()))
    .bind(int(now_ms))
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends those that wait of nodes that are disabled: by this code, at this time.
const END_DISABLED: &str = "UPDATE registration
     SET state = 'refused', code = ?, detail = 'the node was disabled while this waited', updated_at = ?
     WHERE state = 'queued' AND held = 0 AND EXISTS (SELECT 1 FROM disabled d
       WHERE d.cluster_id = registration.cluster_id AND d.node_id = registration.node_id)";

/// Ends the registrations of a node that wait, if it is disabled: who disables one may do so for who has its key. Their tokens
/// stay good. What waits for an approval is decided by that.
///
/// # Errors
/// If the store fails.
pub async fn end_disabled(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    now_ms: u64,
) -> Result<(), StoreError> {
    db::query(format!("{END_DISABLED} AND cluster_id = ? AND node_id = ?"))
        .bind(i64::from(Code::NodeDisabled.number()))
        .bind(int(now_ms))
        .bind(cluster.as_str())
        .bind(node.as_str())
        .execute(conn)
        .await?;
    Ok(())
}

/// The registration is on chain; its token is burnt.
///
/// # Errors
/// If the store fails.
pub async fn on_chain(conn: &mut Conn, id: u64, epoch: u64, now_ms: u64) -> Result<(), StoreError> {
    db::query(
        "UPDATE registration SET state = 'on_chain', epoch = ?, code = NULL, updated_at = ? WHERE id = ?",
    )
    .bind(int(epoch))
    .bind(int(now_ms))
    .bind(int(id))
    .execute(&mut *conn)
    .await?;
    db::query(
        "UPDATE token SET used_at_s = ? WHERE used_at_s IS NULL
         AND jti = (SELECT jti FROM registration WHERE id = ?)",
    )
    .bind(int(now_ms / 1000))
    .bind(int(id))
    .execute(conn)
    .await?;
    Ok(())
}

/// The registration cannot go on chain as it is.
///
/// # Errors
/// If the store fails.
pub async fn refused(
    conn: &mut Conn,
    id: u64,
    code: Code,
    detail: &str,
    now_ms: u64,
) -> Result<(), StoreError> {
    db::query("UPDATE registration SET state = 'refused', code = ?, detail = ?, updated_at = ? WHERE id = ?")
        .bind(i64::from(code.number()))
        .bind(detail)
        .bind(int(now_ms))
        .bind(int(id))
        .execute(conn)
        .await?;
    Ok(())
}

/// Keeps the certificate that answers a registration in the place of the one that it has, unless another has come meanwhile;
/// gives the one on record.
///
/// # Errors
/// If the store fails.
pub async fn store_certificate(
    conn: &mut Conn,
    registration: &Registration,
    certificate: &str,
) -> Result<String, StoreError> {
    db::query(
        "UPDATE registration SET certificate = ? WHERE id = ? AND (certificate IS NULL OR certificate = ?)",
    )
    .bind(certificate)
    .bind(int(registration.id))
    .bind(registration.certificate.as_deref())
    .execute(&mut *conn)
    .await?;
    let row = db::query("SELECT certificate FROM registration WHERE id = ?")
        .bind(int(registration.id))
        .fetch_one(conn)
        .await?;
    Ok(row.try_get(0)?)
}
