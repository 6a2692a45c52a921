use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audit::Role;
use crate::db::{self, Conn, Pool, Row};
use crate::page::{Page, Window};
use crate::store::{StoreError, bytes, int, opt_uint, text, uint};

/// How a credential stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialState {
    /// It counts.
    Valid,
    /// Taken back.
    Revoked,
    /// Past its expiry.
    Expired,
}

/// A credential on record; never its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Credential {
    /// Its id, the middle part of its text.
    pub id: String,
    /// Whose it is, for people and the audit log.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// Who made it.
    pub created_by: String,
    /// When, UNIX seconds.
    pub created_at: UnixSeconds,
    /// From when on it counts no more, UNIX seconds.
    pub expires_at: UnixSeconds,
    /// When it was taken back, UNIX seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<UnixSeconds>,
    /// How it stands.
    pub state: CredentialState,
}

impl Credential {
    pub(super) fn read(row: &Row, now: UnixSeconds) -> Result<Self, StoreError> {
        let expires_at = UnixSeconds(uint(row, "expires_at_s")?);
        let revoked_at = opt_uint(row, "revoked_at_s")?.map(UnixSeconds);
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            role: text(row, "role")?,
            created_by: row.try_get("created_by")?,
            created_at: UnixSeconds(uint(row, "created_at_s")?),
            expires_at,
            revoked_at,
            state: match revoked_at {
                // A rotated one counts until its overlap is over.
                Some(at) if now >= at => CredentialState::Revoked,
                _ if now >= expires_at => CredentialState::Expired,
                _ => CredentialState::Valid,
            },
        })
    }
}

pub(super) async fn insert(conn: &mut Conn, new: &Credential, hash: &[u8; 32]) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO admin_token (id, name, role, secret, created_by, created_at_s, expires_at_s)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&new.id)
    .bind(&new.name)
    .bind(new.role.as_str())
    .bind(hash.as_slice())
    .bind(&new.created_by)
    .bind(int(new.created_at.0))
    .bind(int(new.expires_at.0))
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a credential back from `at` on, unless it ends earlier already.
pub(super) async fn revoke(conn: &mut Conn, id: &str, at: UnixSeconds) -> Result<(), StoreError> {
    db::query("UPDATE admin_token SET revoked_at_s = CASE WHEN revoked_at_s < ?1 THEN revoked_at_s ELSE ?1 END WHERE id = ?2")
        .bind(int(at.0))
        .bind(id)
        .execute(conn)
        .await?;
    Ok(())
}

/// Forgets those that have not counted since `before`.
pub(super) async fn forget(conn: &mut Conn, before: UnixSeconds) -> Result<(), StoreError> {
    db::query("DELETE FROM admin_token WHERE expires_at_s < ?1 OR revoked_at_s < ?1")
        .bind(int(before.0))
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn count(conn: &mut Conn) -> Result<i64, StoreError> {
    let row = db::query("SELECT count(*) AS n FROM admin_token")
        .fetch_one(conn)
        .await?;
    Ok(row.try_get("n")?)
}

pub(super) async fn list(
    pool: &Pool,
    window: Window<'_>,
    now: UnixSeconds,
) -> Result<Page<Credential>, StoreError> {
    let (time, [id]) = window.newest::<1>()?;
    let rows = db::query(
        "SELECT * FROM admin_token WHERE (created_at_s, id) < (?, ?) ORDER BY created_at_s DESC, id DESC LIMIT ?",
    )
    .bind(int(time))
    .bind(id)
    .bind(window.read())
    .fetch_all(pool)
    .await?;
    let rows = rows.iter().map(|row| Credential::read(row, now));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(window.cut(rows, |c| format!("{}/{}", c.created_at.0, c.id)))
}

pub(super) async fn find(
    pool: &Pool,
    id: &str,
    now: UnixSeconds,
) -> Result<Option<(Credential, [u8; 32])>, StoreError> {
    let row = db::query("SELECT * FROM admin_token WHERE id = ?")
        .bind(id)
        .fetch_optional(pool)
        .await?;
    row.map(|row| Ok((Credential::read(&row, now)?, bytes(&row, "secret")?)))
        .transpose()
}
