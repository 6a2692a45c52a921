use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;

use super::super::tokens::{self, TokenState};
use super::row::{NewRegistration, Registration, RegistrationState};
use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// What [`claim`] found.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// The registration of exactly this request, new or from before.
    Ours(Box<Registration>),
    /// The token is not on record.
    Unknown,
    /// The operator has taken the token back, or refused this node; what became of its registration by that.
    Revoked(Option<String>),
    /// Another key or certificate request has used the token.
    Used,
    /// The token has expired.
    Expired,
}

/// Binds a token to one request: the same request finds its registration again, another is turned away
/// once the first has reached the chain or is on its way. A refused one makes room for a better one, and
/// is queued anew when repeated at least `retry_ms` after its refusal.
///
/// # Errors
/// If the store fails.
pub async fn claim(
    conn: &mut Conn,
    new: &NewRegistration<'_>,
    now_ms: u64,
    retry_ms: u64,
) -> Result<Claimed, StoreError> {
    let Some(token) = tokens::find(&mut *conn, new.jti).await? else {
        return Ok(Claimed::Unknown);
    };
    // What the token's signature says is not enough: it counts as it was made.
    if (&token.cluster_id, &token.node_id, &token.public_key) != (new.cluster_id, new.node_id, new.public_key)
    {
        return Ok(Claimed::Unknown);
    }
    let state = token.state(UnixSeconds(now_ms / 1000));
    match state {
        TokenState::Revoked => {
            let ended = by_jti(&mut *conn, new.jti).await?;
            let ended = ended.filter(|r| r.code == Some(Code::TokenInvalid));
            return Ok(Claimed::Revoked(ended.and_then(|r| r.detail)));
        }
        TokenState::Expired => return Ok(Claimed::Expired),
        TokenState::Used if now_ms / 1000 >= token.expires_at.0 => return Ok(Claimed::Expired),
        TokenState::Open | TokenState::Used => {}
    }
    let Some(found) = by_jti(&mut *conn, new.jti).await? else {
        insert(&mut *conn, new, now_ms).await?;
        return ours(conn, new.jti).await;
    };
    let rotation = found.rotation.as_ref().map(|(n, s)| (n.as_str(), s.as_str()));
    let same = found.csr == new.csr && found.public_key == *new.public_key && rotation == new.rotation;
    if found.state != RegistrationState::Refused {
        if !same {
            return Ok(Claimed::Used);
        }
        if new.quoted_by.is_some() && found.quoted_by.as_deref() != new.quoted_by {
            keep_quote(&mut *conn, found.id, new.quoted_by).await?;
        }
        return Ok(Claimed::Ours(Box::new(found)));
    }
    if same && now_ms.saturating_sub(found.updated_at) < retry_ms {
        return Ok(Claimed::Ours(Box::new(found)));
    }
    let (nonce, signature) = new.rotation.unzip();
    db::query(
        "UPDATE registration SET state = 'queued', csr = ?, hostname = ?, hardware_fingerprint = ?,
         registration_nonce = ?, rotation_signature = ?, attestation_key = ?,
         code = NULL, detail = NULL, updated_at = ? WHERE id = ? AND state = 'refused'",
    )
    .bind(new.csr)
    .bind(new.hostname)
    .bind(new.hardware_fingerprint)
    .bind(nonce)
    .bind(signature)
    .bind(new.quoted_by.unwrap_or_default())
    .bind(int(now_ms))
    .bind(int(found.id))
    .execute(&mut *conn)
    .await?;
    ours(conn, new.jti).await
}

async fn ours(conn: &mut Conn, jti: &str) -> Result<Claimed, StoreError> {
    let found = by_jti(conn, jti).await?;
    Ok(found.map_or(Claimed::Unknown, |r| Claimed::Ours(Box::new(r))))
}

async fn by_jti(conn: &mut Conn, jti: &str) -> Result<Option<Registration>, StoreError> {
    let row = db::query("SELECT * FROM registration WHERE jti = ?")
        .bind(jti)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(Registration::read).transpose()
}

/// A quote over the same request counts for it, whenever it comes.
async fn keep_quote(conn: &mut Conn, id: u64, quoted_by: Option<&str>) -> Result<(), StoreError> {
    db::query("UPDATE registration SET attestation_key = ? WHERE id = ?")
        .bind(quoted_by)
        .bind(int(id))
        .execute(conn)
        .await?;
    Ok(())
}

async fn insert(conn: &mut Conn, new: &NewRegistration<'_>, now_ms: u64) -> Result<(), StoreError> {
    let (nonce, signature) = new.rotation.unzip();
    db::query(
        "INSERT INTO registration (jti, cluster_id, node_id, public_key, csr, hostname, hardware_fingerprint,
         registration_nonce, rotation_signature, held, attestation_key, state, created_at, updated_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
    )
    .bind(new.jti)
    .bind(new.cluster_id.as_str())
    .bind(new.node_id.as_str())
    .bind(new.public_key.as_bytes().as_slice())
    .bind(new.csr)
    .bind(new.hostname)
    .bind(new.hardware_fingerprint)
    .bind(nonce)
    .bind(signature)
    .bind(i64::from(new.held))
    .bind(new.quoted_by.unwrap_or_default())
    .bind(int(now_ms))
    .bind(int(now_ms))
    .execute(conn)
    .await?;
    Ok(())
}
