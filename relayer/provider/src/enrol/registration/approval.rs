use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;

use super::super::tokens::{self, TokenState};
use super::row::Registration;
use crate::db::{self, Conn, Pool};
use crate::identity::Claims;
use crate::page::{BadCursor, Page, Window};
use crate::store::{StoreError, int};

/// Registrations of one node that are looked at: as many as one can tell apart.
const NAMESAKES: i64 = 16;

/// What a key is told that the operator has refused. It stands in the store and is looked for there: these words never change.
pub const REJECTED: &str = "the operator has refused this key for this node";

/// Who is meant of those that wait for approval.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    /// The node that it says it is.
    pub node_id: &'a NodeId,
    /// Its cluster; none: any.
    pub cluster_id: Option<&'a ClusterId>,
    /// Its key; none: any.
    pub public_key: Option<&'a AgentKey>,
}

/// Registrations that wait for the operator's approval and may still be given it, oldest first.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn held(
    pool: &Pool,
    now: UnixSeconds,
    window: Window<'_>,
) -> Result<Page<Registration>, StoreError> {
    let [after] = window.texts::<1>()?;
    let after: u64 = match after {
        "" => 0,
        id => id.parse().map_err(|_| BadCursor)?,
    };
    let rows = db::query(
        "SELECT r.* FROM registration r JOIN token t ON t.jti = r.jti
         WHERE r.held = 1 AND r.state = 'queued' AND t.revoked_at_s IS NULL AND t.expires_at_s > ? AND r.id > ?
         ORDER BY r.id LIMIT ?",
    )
    .bind(int(now.0))
    .bind(int(after))
    .bind(window.read())
    .fetch_all(pool)
    .await?;
    let rows = rows.iter().map(Registration::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |r: &Registration| r.id.to_string()))
}

/// Registrations of one node that were held, with how their tokens stand: first those that wait ([`TokenState::Open`]),
/// then those that it is too late for, each oldest first.
///
/// # Errors
/// If the store fails.
pub async fn held_of(
    conn: &mut Conn,
    whom: Applicant<'_>,
    now: UnixSeconds,
) -> Result<Vec<(Registration, TokenState)>, StoreError> {
    let cluster = whom.cluster_id.map_or("", |_| " AND r.cluster_id = ?");
    let key = whom.public_key.map_or("", |_| " AND r.public_key = ?");
    let mut query = db::query(format!(
        "SELECT r.*, t.revoked_at_s, t.used_at_s, t.expires_at_s
         FROM registration r JOIN token t ON t.jti = r.jti
         WHERE (r.held = 1 OR t.expires_at_s <= ?) AND r.state IN ('queued', 'refused') AND r.node_id = ?{cluster}{key}
         ORDER BY t.revoked_at_s IS NOT NULL, t.expires_at_s <= ?, r.id LIMIT ?"
    ))
    .bind(int(now.0))
    .bind(whom.node_id.as_str());
    if let Some(cluster) = whom.cluster_id {
        query = query.bind(cluster.as_str());
    }
    if let Some(key) = whom.public_key {
        query = query.bind(key.as_bytes().as_slice());
    }
    let rows = query.bind(int(now.0)).bind(NAMESAKES).fetch_all(conn).await?;
    rows.iter()
        .map(|row| Ok((Registration::read(row)?, TokenState::read(row, now)?)))
        .collect()
}

/// Lets a registration go on that waits for approval.
///
/// # Errors
/// If the store fails.
pub async fn approve(conn: &mut Conn, id: u64, now_ms: u64) -> Result<(), StoreError> {
    db::query(
        "UPDATE registration SET held = 0, updated_at = ? WHERE id = ? AND held = 1 AND state = 'queued'",
    )
    .bind(int(now_ms))
    .bind(int(id))
    .execute(conn)
    .await?;
    Ok(())
}

/// Refuses a registration that waits for approval, for good: its use of the token is taken back.
///
/// # Errors
/// If the store fails.
pub async fn reject(conn: &mut Conn, registration: &Registration, now_ms: u64) -> Result<(), StoreError> {
    // First: what waits when its token is taken back ends with other words.
    super::batch::refused(conn, registration.id, Code::TokenInvalid, REJECTED, now_ms).await?;
    let now = UnixSeconds(now_ms / 1000);
    tokens::revoke(conn, &registration.jti, now).await.map(drop)
}

/// Whether the operator has refused this key for this node: no other join token lets it in.
///
/// # Errors
/// If the store fails.
pub(in crate::enrol) async fn is_rejected(conn: &mut Conn, claims: &Claims) -> Result<bool, StoreError> {
    let row = db::query(
        "SELECT 1 AS one FROM registration WHERE cluster_id = ? AND node_id = ? AND public_key = ? AND held = 1
         AND state = 'refused' AND detail = ? LIMIT 1",
    )
    .bind(claims.cluster_id.as_str())
    .bind(claims.sub.as_str())
    .bind(claims.pubkey.as_bytes().as_slice())
    .bind(REJECTED)
    .fetch_optional(conn)
    .await?;
    Ok(row.is_some())
}
