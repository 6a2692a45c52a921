use std::net::IpAddr;

use hpc_schema::id::ClusterId;
use hpc_schema::time::UnixSeconds;
use hpc_schema::token::JoinClaims;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::network::Network;
use super::registration;
use super::tokens::{self, TokenState};
use crate::db::{self, Conn, Pool, Row};
use crate::identity::Claims;
use crate::page::{Page, Window};
use crate::store::{StoreError, int, opt_uint, text, uint};

/// A join token on record; the token itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinRow {
    /// Its id.
    pub jti: String,
    /// The cluster it is for.
    pub cluster_id: ClusterId,
    /// How many nodes may use it.
    pub uses: u32,
    /// How many have.
    pub used: u32,
    /// Networks that may use it; none: any.
    pub ranges: Vec<String>,
    /// Whether each node waits for the operator's approval.
    pub approval: bool,
    /// When it was made.
    pub created_at: UnixSeconds,
    /// Until when it counts.
    pub expires_at: UnixSeconds,
    /// When it was taken back.
    pub revoked_at: Option<UnixSeconds>,
}

/// What a join token allows.
#[derive(Debug, Clone)]
pub struct JoinTerms {
    /// How many nodes.
    pub uses: u32,
    /// From which networks; none: any.
    pub ranges: Vec<Network>,
    /// Whether each waits for the operator's approval.
    pub approval: bool,
}

/// What [`join`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The node may go on; `held`: once the operator approves.
    Yes {
        /// Waits for approval.
        held: bool,
    },
    /// Not on record.
    Unknown,
    /// Taken back.
    Revoked,
    /// Past its expiry.
    Expired,
    /// As many nodes as it allows have used it.
    NoUsesLeft,
    /// The request comes from elsewhere.
    OutOfRange,
    /// The operator has refused this key for this node.
    Rejected,
}

impl JoinRow {
    /// How the token stands at `now`.
    #[must_use]
    pub fn state(&self, now: UnixSeconds) -> TokenState {
        if self.revoked_at.is_some() {
            TokenState::Revoked
        } else if now >= self.expires_at {
            TokenState::Expired
        } else if self.used >= self.uses {
            TokenState::Used
        } else {
            TokenState::Open
        }
    }

    fn read(row: &Row) -> Result<Self, StoreError> {
        let count = |column| {
            u32::try_from(uint(row, column)?).map_err(|_| StoreError::Value {
                table: "join_token",
                column,
            })
        };
        let ranges: String = row.try_get("ranges")?;
        Ok(Self {
            jti: row.try_get("jti")?,
            cluster_id: text(row, "cluster_id")?,
            uses: count("uses")?,
            used: count("used")?,
            ranges: ranges
                .split(',')
                .filter(|r| !r.is_empty())
                .map(str::to_owned)
                .collect(),
            approval: uint(row, "approval")? != 0,
            created_at: UnixSeconds(uint(row, "created_at_s")?),
            expires_at: UnixSeconds(uint(row, "expires_at_s")?),
            revoked_at: opt_uint(row, "revoked_at_s")?.map(UnixSeconds),
        })
    }
}

/// Id of the token by which one node uses a join token.
#[must_use]
pub fn use_id(join: &str, claims_node: &str, key: &[u8; 32]) -> String {
    let mut hash = Sha256::new();
    hash.update(join);
    hash.update([0]);
    hash.update(claims_node);
    hash.update([0]);
    hash.update(key);
    let digest: [u8; 32] = hash.finalize().into();
    hex::encode(digest.get(..16).unwrap_or_default())
}

/// Puts a new join token on record.
///
/// # Errors
/// If the store fails.
pub async fn insert_join(conn: &mut Conn, claims: &JoinClaims, terms: &JoinTerms) -> Result<(), StoreError> {
    let ranges: Vec<String> = terms.ranges.iter().map(ToString::to_string).collect();
    db::query(
        "INSERT INTO join_token (jti, cluster_id, uses, ranges, approval, created_at_s, expires_at_s)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&claims.jti)
    .bind(claims.cluster_id.as_str())
    .bind(i64::from(terms.uses))
    .bind(ranges.join(","))
    .bind(i64::from(terms.approval))
    .bind(int(claims.iat.0))
    .bind(int(claims.exp.0))
    .execute(conn)
    .await?;
    Ok(())
}

const SELECT: &str =
    "SELECT j.*, (SELECT count(*) FROM token t WHERE t.parent = j.jti) AS used FROM join_token j";

/// Every join token, newest first.
///
/// # Errors
/// If the store fails.
pub async fn list_joins(pool: &Pool, window: Window<'_>) -> Result<Page<JoinRow>, StoreError> {
    let (time, [jti]) = window.newest::<1>()?;
    let rows = db::query(format!(
        "{SELECT} WHERE (j.created_at_s, j.jti) < (?, ?) ORDER BY j.created_at_s DESC, j.jti DESC LIMIT ?"
    ))
    .bind(int(time))
    .bind(jti)
    .bind(window.read())
    .fetch_all(pool)
    .await?;
    let rows = rows.iter().map(JoinRow::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |t: &JoinRow| format!("{}/{}", t.created_at.0, t.jti)))
}

/// Lets a node use a join token: the first time it takes a use and becomes a token of its own, `claims`; the same node
/// with the same key comes back to that one.
///
/// # Errors
/// If the store fails.
pub async fn join(
    conn: &mut Conn,
    join: &str,
    claims: &Claims,
    from: IpAddr,
    now: UnixSeconds,
) -> Result<Joined, StoreError> {
    let row = db::query(format!("{SELECT} WHERE j.jti = ?"))
        .bind(join)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(row) = row.as_ref().map(JoinRow::read).transpose()? else {
        return Ok(Joined::Unknown);
    };
    let held = row.approval;
    match row.state(now) {
        TokenState::Revoked => return Ok(Joined::Revoked),
        TokenState::Expired => return Ok(Joined::Expired),
        TokenState::Open | TokenState::Used => {}
    }
    let within = |range: &String| range.parse::<Network>().is_ok_and(|n| n.contains(from));
    if !row.ranges.is_empty() && !row.ranges.iter().any(within) {
        return Ok(Joined::OutOfRange);
    }
    if tokens::find(&mut *conn, &claims.jti).await?.is_some() {
        return Ok(Joined::Yes { held });
    }
    if registration::is_rejected(&mut *conn, claims).await? {
        return Ok(Joined::Rejected);
    }
    if row.used >= row.uses {
        return Ok(Joined::NoUsesLeft);
    }
    tokens::insert(&mut *conn, claims).await?;
    db::query("UPDATE token SET parent = ? WHERE jti = ?")
        .bind(join)
        .bind(&claims.jti)
        .execute(conn)
        .await?;
    Ok(Joined::Yes { held })
}

/// Takes a join token back, with the uses of it that are not done; whether there was one.
///
/// # Errors
/// If the store fails.
pub async fn revoke_join(conn: &mut Conn, jti: &str, now: UnixSeconds) -> Result<bool, StoreError> {
    let done = db::query("UPDATE join_token SET revoked_at_s = ? WHERE jti = ? AND revoked_at_s IS NULL")
        .bind(int(now.0))
        .bind(jti)
        .execute(&mut *conn)
        .await?;
    db::query(
        "UPDATE token SET revoked_at_s = ? WHERE parent = ? AND used_at_s IS NULL AND revoked_at_s IS NULL",
    )
    .bind(int(now.0))
    .bind(jti)
    .execute(&mut *conn)
    .await?;
    registration::end_revoked(conn, now.0.saturating_mul(1000)).await?;
    Ok(done.rows_affected() > 0)
}
