use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::tokens::{self, TokenState};
use crate::store::{StoreError, bytes, int, opt_uint, text, uint};

/// How far a registration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationState {
    /// Waits to be signed.
    Queued,
    /// Part of a transaction.
    Sent,
    /// Done.
    OnChain,
    /// The chain or the gateway refuses it for now; a repeated request tries again.
    Refused,
}

impl RegistrationState {
    fn read(row: &SqliteRow) -> Result<Self, StoreError> {
        let word: String = row.try_get("state")?;
        match word.as_str() {
            "queued" => Ok(Self::Queued),
            "sent" => Ok(Self::Sent),
            "on_chain" => Ok(Self::OnChain),
            "refused" => Ok(Self::Refused),
            _ => Err(StoreError::Value {
                table: "registration",
                column: "state",
            }),
        }
    }
}

/// A request to register, checked against its token.
#[derive(Debug, Clone)]
pub struct NewRegistration<'a> {
    /// Token id.
    pub jti: &'a str,
    /// From the token.
    pub cluster_id: &'a ClusterId,
    /// From the token.
    pub node_id: &'a NodeId,
    /// From the token.
    pub public_key: &'a AgentKey,
    /// DER of the certificate request.
    pub csr: &'a [u8],
    /// As the agent says.
    pub hostname: Option<&'a str>,
    /// As the agent says.
    pub hardware_fingerprint: Option<&'a str>,
}

/// A registration on record.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Row.
    pub id: u64,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// The agent's key.
    pub public_key: AgentKey,
    /// DER of the certificate request.
    pub csr: Vec<u8>,
    /// As the agent says.
    pub hostname: Option<String>,
    /// As the agent says.
    pub hardware_fingerprint: Option<String>,
    /// How far it is.
    pub state: RegistrationState,
    /// Why it was refused.
    pub code: Option<Code>,
    /// The same for people.
    pub detail: Option<String>,
    /// The epoch it began.
    pub epoch: Option<u64>,
    /// The certificate that answers it.
    pub certificate: Option<String>,
    /// UNIX milliseconds.
    pub updated_at: u64,
}

impl Registration {
    fn read(row: &SqliteRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: uint(row, "id")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            public_key: AgentKey::from_bytes(bytes(row, "public_key")?).map_err(|_| StoreError::Value {
                table: "registration",
                column: "public_key",
            })?,
            csr: row.try_get("csr")?,
            hostname: row.try_get("hostname")?,
            hardware_fingerprint: row.try_get("hardware_fingerprint")?,
            state: RegistrationState::read(row)?,
            code: opt_uint(row, "code")?
                .and_then(|n| u8::try_from(n).ok())
                .and_then(Code::from_number),
            detail: row.try_get("detail")?,
            epoch: opt_uint(row, "epoch")?,
            certificate: row.try_get("certificate")?,
            updated_at: uint(row, "updated_at")?,
        })
    }
}

/// What [`claim`] found.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// The registration of exactly this request, new or from before.
    Ours(Box<Registration>),
    /// The token is not on record.
    Unknown,
    /// The operator has taken the token back.
    Revoked,
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
    conn: &mut SqliteConnection,
    new: &NewRegistration<'_>,
    now_ms: u64,
    retry_ms: u64,
) -> Result<Claimed, StoreError> {
    let Some(token) = tokens::find(&mut *conn, new.jti).await? else {
        return Ok(Claimed::Unknown);
    };
    let state = token.state(UnixSeconds(now_ms / 1000));
    match state {
        TokenState::Revoked => return Ok(Claimed::Revoked),
        TokenState::Expired => return Ok(Claimed::Expired),
        TokenState::Used if now_ms / 1000 >= token.expires_at.0 => return Ok(Claimed::Expired),
        TokenState::Open | TokenState::Used => {}
    }
    let Some(found) = by_jti(&mut *conn, new.jti).await? else {
        insert(&mut *conn, new, now_ms).await?;
        return ours(conn, new.jti).await;
    };
    let same = found.csr == new.csr && found.public_key == *new.public_key;
    if found.state != RegistrationState::Refused {
        return Ok(if same {
            Claimed::Ours(Box::new(found))
        } else {
            Claimed::Used
        });
    }
    if same && now_ms.saturating_sub(found.updated_at) < retry_ms {
        return Ok(Claimed::Ours(Box::new(found)));
    }
    sqlx::query(
        "UPDATE registration SET state = 'queued', csr = ?, hostname = ?, hardware_fingerprint = ?,
         code = NULL, detail = NULL, updated_at = ? WHERE id = ? AND state = 'refused'",
    )
    .bind(new.csr)
    .bind(new.hostname)
    .bind(new.hardware_fingerprint)
    .bind(int(now_ms))
    .bind(int(found.id))
    .execute(&mut *conn)
    .await?;
    ours(conn, new.jti).await
}

async fn ours(conn: &mut SqliteConnection, jti: &str) -> Result<Claimed, StoreError> {
    let found = by_jti(conn, jti).await?;
    Ok(found.map_or(Claimed::Unknown, |r| Claimed::Ours(Box::new(r))))
}

async fn by_jti(conn: &mut SqliteConnection, jti: &str) -> Result<Option<Registration>, StoreError> {
    let row = sqlx::query("SELECT * FROM registration WHERE jti = ?")
        .bind(jti)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(Registration::read).transpose()
}

async fn insert(
    conn: &mut SqliteConnection,
    new: &NewRegistration<'_>,
    now_ms: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO registration (jti, cluster_id, node_id, public_key, csr, hostname, hardware_fingerprint,
         state, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
    )
    .bind(new.jti)
    .bind(new.cluster_id.as_str())
    .bind(new.node_id.as_str())
    .bind(new.public_key.as_bytes().as_slice())
    .bind(new.csr)
    .bind(new.hostname)
    .bind(new.hardware_fingerprint)
    .bind(int(now_ms))
    .bind(int(now_ms))
    .execute(conn)
    .await?;
    Ok(())
}

/// Registrations that wait to be signed, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn queued(conn: &mut SqliteConnection, limit: u32) -> Result<Vec<Registration>, StoreError> {
    let rows = sqlx::query("SELECT * FROM registration WHERE state = 'queued' ORDER BY id LIMIT ?")
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await?;
    rows.iter().map(Registration::read).collect()
}

/// Binds registrations to a transaction, in order.
///
/// # Errors
/// If the store fails.
pub async fn bind_to_batch(
    conn: &mut SqliteConnection,
    batch: u64,
    ids: &[u64],
    now_ms: u64,
) -> Result<(), StoreError> {
    for (item, id) in (0u32..).zip(ids) {
        sqlx::query("INSERT INTO batch_registration (batch_id, item, registration_id) VALUES (?, ?, ?)")
            .bind(int(batch))
            .bind(i64::from(item))
            .bind(int(*id))
            .execute(&mut *conn)
            .await?;
        sqlx::query("UPDATE registration SET state = 'sent', updated_at = ? WHERE id = ?")
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
pub async fn in_batch(conn: &mut SqliteConnection, batch: u64) -> Result<Vec<Registration>, StoreError> {
    let rows = sqlx::query(
        "SELECT r.* FROM batch_registration b JOIN registration r ON r.id = b.registration_id
         WHERE b.batch_id = ? ORDER BY b.item",
    )
    .bind(int(batch))
    .fetch_all(conn)
    .await?;
    rows.iter().map(Registration::read).collect()
}

/// The transaction is over: its registrations are no longer bound to it.
///
/// # Errors
/// If the store fails.
pub async fn release(conn: &mut SqliteConnection, batch: u64, now_ms: u64) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE registration SET state = 'queued', updated_at = ? WHERE state = 'sent'
         AND id IN (SELECT registration_id FROM batch_registration WHERE batch_id = ?)",
    )
    .bind(int(now_ms))
    .bind(int(batch))
    .execute(&mut *conn)
    .await?;
    sqlx::query("DELETE FROM batch_registration WHERE batch_id = ?")
        .bind(int(batch))
        .execute(conn)
        .await?;
    Ok(())
}

/// The registration is on chain; its token is burnt.
///
/// # Errors
/// If the store fails.
pub async fn on_chain(
    conn: &mut SqliteConnection,
    id: u64,
    epoch: u64,
    now_ms: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE registration SET state = 'on_chain', epoch = ?, code = NULL, updated_at = ? WHERE id = ?",
    )
    .bind(int(epoch))
    .bind(int(now_ms))
    .bind(int(id))
    .execute(&mut *conn)
    .await?;
    sqlx::query(
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
    conn: &mut SqliteConnection,
    id: u64,
    code: Code,
    detail: &str,
    now_ms: u64,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE registration SET state = 'refused', code = ?, detail = ?, updated_at = ? WHERE id = ?",
    )
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
pub async fn store_certificate(
    conn: &mut SqliteConnection,
    id: u64,
    certificate: &str,
) -> Result<String, StoreError> {
    sqlx::query("UPDATE registration SET certificate = ? WHERE id = ? AND certificate IS NULL")
        .bind(certificate)
        .bind(int(id))
        .execute(&mut *conn)
        .await?;
    let row = sqlx::query("SELECT certificate FROM registration WHERE id = ?")
        .bind(int(id))
        .fetch_one(conn)
        .await?;
    Ok(row.try_get(0)?)
}
