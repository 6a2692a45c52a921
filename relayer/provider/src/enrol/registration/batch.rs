use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;

use super::row::Registration;
use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// Registrations that wait to be signed, oldest first; none whose token has been taken back or has
/// expired meanwhile: what is on chain then would get no certificate.
///
/// # Errors
/// If the store fails.
pub async fn queued(conn: &mut Conn, now: UnixSeconds, limit: u32) -> Result<Vec<Registration>, StoreError> {
    let rows = db::query(
        "SELECT r.* FROM registration r JOIN token t ON t.jti = r.jti
         WHERE r.state = 'queued' AND r.held = 0 AND t.revoked_at_s IS NULL AND t.expires_at_s > ?
         ORDER BY r.id LIMIT ?",
    )
    .bind(int(now.0))
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    rows.iter().map(Registration::read).collect()
}

/// Binds registrations to a transaction, in order.
///
/// # Errors
/// If the store fails.
pub async fn bind_to_batch(conn: &mut Conn, batch: u64, ids: &[u64], now_ms: u64) -> Result<(), StoreError> {
    for (item, id) in (0u32..).zip(ids) {
        db::query("INSERT INTO batch_registration (batch_id, item, registration_id) VALUES (?, ?, ?)")
            .bind(int(batch))
            .bind(i64::from(item))
            .bind(int(*id))
            .execute(&mut *conn)
            .await?;
        db::query("UPDATE registration SET state = 'sent', updated_at = ? WHERE id = ?")
            .bind(int(now_ms))
            .bind(int(*id))
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
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

/// The transaction is over: its registrations are no longer bound to it. Those whose token was taken back meanwhile
/// do not wait again.
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

/// Keeps the certificate that answers a registration, unless one is there; gives the one on record.
///
/// # Errors
/// If the store fails.
pub async fn store_certificate(conn: &mut Conn, id: u64, certificate: &str) -> Result<String, StoreError> {
    db::query("UPDATE registration SET certificate = ? WHERE id = ? AND certificate IS NULL")
        .bind(certificate)
        .bind(int(id))
        .execute(&mut *conn)
        .await?;
    let row = db::query("SELECT certificate FROM registration WHERE id = ?")
        .bind(int(id))
        .fetch_one(conn)
        .await?;
    Ok(row.try_get(0)?)
}
