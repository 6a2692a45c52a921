use hpc_schema::code::Code;
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rows::{self, Credential, CredentialState};
use super::secret::Secret;
use crate::admin::Admin;
use crate::admin::act::Act;
use crate::admin::error::AdminError;
use crate::audit::{Actor, Role};
use crate::clock;
use crate::control;
use crate::page::{Page, Window};

/// Longest life of a credential.
pub const MAX_LIFE_SECONDS: u64 = 366 * 24 * 3600;
/// Most that are on record.
const MAX_CREDENTIALS: i64 = 1000;
/// How long ended ones stay on record.
const KEPT_SECONDS: u64 = 30 * 24 * 3600;
/// Longest name in bytes.
const MAX_NAME: usize = 64;

/// A credential that is to be made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCredential {
    /// Whose it is: 1 to 64 of letters, digits and `. _ @ -`.
    #[schemars(regex(pattern = "^[A-Za-z0-9._@-]{1,64}$"))]
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// How long it counts, up to 366 days.
    #[schemars(range(min = 1, max = 31_622_400))]
    pub expires_seconds: u64,
}

/// A credential with its text, which is shown this once.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct Made {
    /// As on record.
    #[serde(flatten)]
    pub credential: Credential,
    /// The credential itself; nobody can show it again.
    pub token: String,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

impl Admin {
    /// Credentials of the admin listener, newest first.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn credentials(&self, window: Window<'_>) -> Result<Page<Credential>, AdminError> {
        Ok(rows::list(self.store.reader(), window, clock::now()).await?)
    }

    /// Makes a credential.
    ///
    /// # Errors
    /// If name or life cannot be, or there are too many.
    pub async fn make_credential(&self, by: &Actor, new: &NewCredential) -> Result<Made, AdminError> {
        let mut act = Act::begin(
            &self.store,
            by,
            "admin_token.create",
            format!("admin token of {}", new.name),
        )
        .await?;
        let done = make(&mut act, by, new).await;
        let id = done.as_ref().ok().map(|m| m.credential.id.clone());
        let detail = json!({ "id": id, "role": new.role, "expires_seconds": new.expires_seconds });
        act.end(done, detail).await
    }

    /// Makes a credential of the same name and role in place of another, which counts `overlap_seconds` longer, so
    /// that whoever uses it can change over.
    ///
    /// # Errors
    /// If there is none of this id that counts.
    pub async fn rotate_credential(
        &self,
        by: &Actor,
        id: &str,
        expires_seconds: u64,
        overlap_seconds: u64,
    ) -> Result<Made, AdminError> {
        let mut act = Act::begin(&self.store, by, "admin_token.rotate", format!("admin token {id}")).await?;
        let done = async {
            let old = self.valid(id).await?;
            let new = NewCredential {
                name: old.name,
                role: old.role,
                expires_seconds,
            };
            let made = make(&mut act, by, &new).await?;
            rows::revoke(act.conn(), id, clock::now().plus(overlap_seconds)).await?;
            Ok(made)
        };
        let done = done.await;
        let next = done.as_ref().ok().map(|m| m.credential.id.clone());
        let detail = json!({ "id": next, "overlap_seconds": overlap_seconds });
        let made = act.end(done, detail).await?;
        control::nudge(&self.home);
        Ok(made)
    }

    /// Takes a credential back at once.
    ///
    /// # Errors
    /// If there is none of this id that counts.
    pub async fn revoke_credential(&self, by: &Actor, id: &str) -> Result<(), AdminError> {
        let mut act = Act::begin(&self.store, by, "admin_token.revoke", format!("admin token {id}")).await?;
        let done = async {
            self.valid(id).await?;
            rows::revoke(act.conn(), id, clock::now()).await?;
            Ok::<_, AdminError>(())
        };
        let done = done.await;
        act.end(done, json!({})).await?;
        control::nudge(&self.home);
        Ok(())
    }

    async fn valid(&self, id: &str) -> Result<Credential, AdminError> {
        let found = rows::find(self.store.reader(), id, clock::now()).await?;
        let known = found.map(|(credential, _)| credential);
        known
            .filter(|c| c.state == CredentialState::Valid)
            .ok_or_else(|| {
                let what = format!(
                    "there is no admin token {id} that counts (virtengine-provider admin-token list)"
                );
                AdminError::missing("id", what)
            })
    }
}

async fn make(act: &mut Act, by: &Actor, new: &NewCredential) -> Result<Made, AdminError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'@' | b'-');
    if !(1..=MAX_NAME).contains(&new.name.len()) || !new.name.bytes().all(good) {
        let what = format!("must be 1 to {MAX_NAME} letters, digits and . _ @ -");
        return Err(AdminError::field(Code::InvalidField, "name", what));
    }
    if !(1..=MAX_LIFE_SECONDS).contains(&new.expires_seconds) {
        let what = "must be 1 second to 366 days";
        return Err(AdminError::field(Code::InvalidField, "expires_seconds", what));
    }
    let now = clock::now();
    rows::forget(act.conn(), now.minus(KEPT_SECONDS)).await?;
    if rows::count(act.conn()).await? >= MAX_CREDENTIALS {
        let what = format!("{MAX_CREDENTIALS} are on record; those that count no more go after 30 days");
        return Err(AdminError::field(Code::InvalidState, "name", what));
    }
    let secret = Secret::draw()?;
    let credential = Credential {
        id: secret.id().to_owned(),
        name: new.name.clone(),
        role: new.role,
        created_by: by.name.clone(),
        created_at: now,
        expires_at: UnixSeconds(now.0).plus(new.expires_seconds),
        revoked_at: None,
        state: CredentialState::Valid,
    };
    rows::insert(act.conn(), &credential, &secret.hash()).await?;
    Ok(Made {
        credential,
        token: secret.text().to_string(),
    })
}
