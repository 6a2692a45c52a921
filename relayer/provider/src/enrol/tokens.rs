use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::registration;
use crate::db::{self, Conn, Pool, Row};
use crate::identity::Claims;
use crate::page::{Page, Window};
use crate::store::{StoreError, bytes, int, opt_uint, text, uint};

/// How a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// May be used.
    Open,
    /// Its registration is on chain.
    Used,
    /// Taken back by the operator.
    Revoked,
    /// Past its expiry.
    Expired,
}

/// When a token was taken back, when its registration was found on chain, and when it ends.
type Times = (Option<UnixSeconds>, Option<UnixSeconds>, UnixSeconds);

fn times(row: &Row) -> Result<Times, StoreError> {
    Ok((
        opt_uint(row, "revoked_at_s")?.map(UnixSeconds),
        opt_uint(row, "used_at_s")?.map(UnixSeconds),
        UnixSeconds(uint(row, "expires_at_s")?),
    ))
}

impl TokenState {
    fn of((revoked_at, used_at, expires_at): Times, now: UnixSeconds) -> Self {
        if revoked_at.is_some() {
            Self::Revoked
        } else if used_at.is_some() {
            Self::Used
        } else if now >= expires_at {
            Self::Expired
        } else {
            Self::Open
        }
    }

    /// How the token stands at `now` whose times are in this row.
    pub(super) fn read(row: &Row, now: UnixSeconds) -> Result<Self, StoreError> {
        Ok(Self::of(times(row)?, now))
    }
}

/// One token on record; the token itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRow {
    /// Its id.
    pub jti: String,
    /// The cluster it is for.
    pub cluster_id: ClusterId,
    /// The node it is for.
    pub node_id: NodeId,
    /// The agent's key it is for.
    pub public_key: AgentKey,
    /// When it was made.
    pub created_at: UnixSeconds,
    /// Until when it counts.
    pub expires_at: UnixSeconds,
    /// When it was taken back.
    pub revoked_at: Option<UnixSeconds>,
    /// When its registration was found on chain.
    pub used_at: Option<UnixSeconds>,
}

impl TokenRow {
    /// How the token stands at `now`.
    #[must_use]
    pub fn state(&self, now: UnixSeconds) -> TokenState {
        TokenState::of((self.revoked_at, self.used_at, self.expires_at), now)
    }

    fn read(row: &Row) -> Result<Self, StoreError> {
        let (revoked_at, used_at, expires_at) = times(row)?;
        Ok(Self {
            jti: row.try_get("jti")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            public_key: AgentKey::from_bytes(bytes(row, "public_key")?).map_err(|_| StoreError::Value {
                table: "token",
                column: "public_key",
            })?,
            created_at: UnixSeconds(uint(row, "created_at_s")?),
            expires_at,
            revoked_at,
            used_at,
        })
    }
}

/// Puts a new token on record.
///
/// # Errors
/// If the store fails.
pub async fn insert(conn: &mut Conn, claims: &Claims) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO token (jti, cluster_id, node_id, public_key, created_at_s, expires_at_s)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(&claims.jti)
    .bind(claims.cluster_id.as_str())
    .bind(claims.sub.as_str())
    .bind(claims.pubkey.as_bytes().as_slice())
    .bind(int(claims.iat))
    .bind(int(claims.exp))
    .execute(conn)
    .await?;
    Ok(())
}

/// One token.
///
/// # Errors
/// If the store fails.
pub async fn find(conn: &mut Conn, jti: &str) -> Result<Option<TokenRow>, StoreError> {
    let row = db::query("SELECT * FROM token WHERE jti = ?")
        .bind(jti)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(TokenRow::read).transpose()
}

/// Tokens, newest first.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn list(pool: &Pool, window: Window<'_>) -> Result<Page<TokenRow>, StoreError> {
    let (time, [jti]) = window.newest::<1>()?;
    let rows = db::query(
        "SELECT * FROM token WHERE (created_at_s, jti) < (?, ?) ORDER BY created_at_s DESC, jti DESC LIMIT ?",
    )
    .bind(int(time))
    .bind(jti)
    .bind(window.read())
    .fetch_all(pool)
    .await?;
    let rows = rows.iter().map(TokenRow::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |t: &TokenRow| format!("{}/{}", t.created_at.0, t.jti)))
}

/// What [`revoke`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// It counts no more, and what waited because of it has ended.
    Done,
    /// It counts no more, but a registration with it is in a transaction that cannot be called back.
    Sent,
    /// There is no unused token of this id.
    Unknown,
}

/// Takes a token back, and the registration that waits because of it.
///
/// # Errors
/// If the store fails.
pub async fn revoke(conn: &mut Conn, jti: &str, now: UnixSeconds) -> Result<Revoked, StoreError> {
    let done = db::query(
        "UPDATE token SET revoked_at_s = ? WHERE jti = ? AND used_at_s IS NULL AND revoked_at_s IS NULL",
    )
    .bind(int(now.0))
    .bind(jti)
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(Revoked::Unknown);
    }
    registration::end_revoked(&mut *conn, now.0.saturating_mul(1000)).await?;
    let sent = db::query("SELECT 1 FROM registration WHERE jti = ? AND state = 'sent'")
        .bind(jti)
        .fetch_optional(conn)
        .await?;
    Ok(if sent.is_some() {
        Revoked::Sent
    } else {
        Revoked::Done
    })
}
