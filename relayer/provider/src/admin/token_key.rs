//! A new key that signs registration tokens: gateways take both until the former one's end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::key::AgentKey;
use hpc_schema::time::UnixSeconds;
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use super::token::MAX_EXPIRES_SECONDS;
use crate::audit::Actor;
use crate::identity::{Seed, SeedError, Verifying};
use crate::store::StoreError;
use crate::{clock, control, fault, home};

const ACTION: &str = "token_key.rotate";
const TARGET: &str = "token key";
/// Gateways look for decisions four times a second: by then they know the key that is about to sign.
const UNTIL_KNOWN: Duration = Duration::from_secs(1);

/// A rotation of the token key that is done.
#[derive(Debug, Clone, Serialize)]
pub struct RotatedTokenKey {
    /// The former key.
    pub old_key: AgentKey,
    /// The key that signs tokens from here on.
    pub new_key: AgentKey,
    /// Until then tokens of the former key are taken, if their own time is not over.
    pub old_key_until: UnixSeconds,
    /// A rotation that had been broken off was ended, and none begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
}

impl Admin {
    /// Gives the gateway another key that signs tokens; the former one's tokens are taken `overlap_seconds` longer. Broken off
    /// anywhere, it is gone on with by the next call, which begins no other: the new key is drawn first and gateways take what
    /// it will sign, then it is on record, and last it gets the former one's file. One call at a time.
    ///
    /// # Errors
    /// If the overlap is longer than any token's life, or a file or the store fails.
    pub async fn rotate_token_key(
        &self,
        by: &Actor,
        overlap_seconds: u64,
    ) -> Result<RotatedTokenKey, AdminError> {
        let rotated = self.rotate_tokens(by, overlap_seconds).await;
        // What was refused within its own transaction is on record by then.
        if let Err(Failed::Before(e)) = &rotated {
            let (result, detail) = e.recorded();
            Act::note(&self.store, by, (ACTION, TARGET.to_owned()), result, detail).await?;
        }
        rotated.map_err(|(Failed::Before(e) | Failed::Recorded(e))| e)
    }

    async fn rotate_tokens(&self, by: &Actor, overlap: u64) -> Result<RotatedTokenKey, Failed> {
        if overlap > MAX_EXPIRES_SECONDS {
            let what = format!("is {overlap} seconds, must be at most {MAX_EXPIRES_SECONDS} (720h)");
            return Err(Failed::Before(AdminError::field(
                Code::InvalidField,
                "overlap",
                what,
            )));
        }
        let path = self.home.token_key();
        let next_path = self.home.next_token_key();
        let file = |path: PathBuf| move |source| SeedError::File { path, source };
        let lock = self.home.token_key_lock();
        let Some(_alone) = home::try_lock(&lock).map_err(file(lock))? else {
            let what = "is being replaced by another call; run this again for one more";
            return Err(Failed::Before(AdminError::field(
                Code::InvalidState,
                "token_key",
                what,
            )));
        };
        let drawn = Seed::load_drawn(&next_path)?;
        let resumed = drawn.is_some();
        let next = match drawn {
            Some(drawn) => drawn,
            None => Seed::load_or_create(&next_path)?,
        };
        fault::point("token_key.drawn");
        self.files_changed().await?;
        sleep(UNTIL_KNOWN).await;
        let old = self.replaced(&path, &next)?;
        let now = clock::now();
        let wanted = now.plus(overlap);
        let act = Act::begin(&self.store, by, ACTION, TARGET).await?;
        let recorded = Verifying::retire(&self.home, &old, wanted, now).map_err(|e| of_home(&e));
        let until = *recorded.as_ref().unwrap_or(&wanted);
        let detail = json!({
            "old_key": old, "new_key": next.public(), "old_key_until": until, "resumed": resumed,
        });
        act.end(recorded, detail).await.map_err(Failed::Recorded)?;
        fault::point("token_key.recorded");
        // Both have it until gateways are told: broken off before, it is told by the next call.
        home::copy_private(&next_path, &path).map_err(file(path))?;
        fault::point("token_key.promoted");
        self.files_changed().await?;
        home::remove(&next_path).map_err(file(next_path))?;
        Ok(RotatedTokenKey {
            old_key: old,
            new_key: *next.public(),
            old_key_until: until,
            resumed,
        })
    }

    /// The key whose place `next` takes, or has taken in a rotation that was broken off right after.
    fn replaced(&self, path: &Path, next: &Seed) -> Result<AgentKey, Failed> {
        let present = *Seed::load(path)?.public();
        if present != *next.public() {
            return Ok(present);
        }
        Verifying::last_retired(&self.home)?.ok_or_else(|| {
            Failed::Before(AdminError::Home(format!(
                "{}: lacks the key that was replaced last; its tokens count no more, and the new key signs: remove {} and run reload",
                self.home.former_token_keys().display(),
                self.home.next_token_key().display()
            )))
        })
    }

    /// Has gateways read their files anew.
    async fn files_changed(&self) -> Result<(), StoreError> {
        let mut tx = self.store.begin().await?;
        control::touch_files(&mut tx).await?;
        tx.commit().await?;
        control::nudge(&self.home);
        Ok(())
    }
}

/// A rotation that failed.
enum Failed {
    /// Nothing says so yet.
    Before(AdminError),
    /// With its row in the audit log.
    Recorded(AdminError),
}

impl From<SeedError> for Failed {
    fn from(e: SeedError) -> Self {
        Self::Before(of_home(&e))
    }
}

impl From<StoreError> for Failed {
    fn from(e: StoreError) -> Self {
        Self::Before(e.into())
    }
}

fn of_home(e: &SeedError) -> AdminError {
    AdminError::Home(e.to_string())
}
