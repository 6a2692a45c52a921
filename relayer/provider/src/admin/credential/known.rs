use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hpc_schema::time::UnixSeconds;

use super::rows::{Credential, CredentialState, find};
use super::secret::Presented;
use crate::audit::{Actor, Via};
use crate::db::Pool;
use crate::store::StoreError;

/// So long a credential counts without being asked for again, where nobody tells of its end.
const FRESH: Duration = Duration::from_millis(250);
/// More than can count at a time.
const MOST: usize = 1024;

/// Credentials that were found to count a moment ago: whoever asks again and again waits for the store once.
#[derive(Debug, Default)]
pub struct Known(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<String, Entry>,
    forgotten: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    actor: Actor,
    hash: [u8; 32],
    ends_at: UnixSeconds,
    found: Instant,
}

impl Known {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who shows this credential, if it counts.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn authenticate(
        &self,
        pool: &Pool,
        presented: &Presented,
        now: UnixSeconds,
    ) -> Result<Option<Actor>, StoreError> {
        if let Some(actor) = self.recent(presented, now) {
            return Ok(Some(actor));
        }
        // From before it is read: what ends meanwhile does not count for longer.
        let found = Instant::now();
        let row = find(pool, &presented.id, now).await?;
        // An unknown id is compared as well, with what nothing hashes to.
        let (credential, hash) = row.map_or((None, [0; 32]), |(c, hash)| (Some(c), hash));
        let right = presented.is(&hash);
        let counts = credential.filter(|c| right && c.state == CredentialState::Valid);
        Ok(counts.map(|credential| self.keep(credential, hash, found)))
    }

    fn recent(&self, presented: &Presented, now: UnixSeconds) -> Option<Actor> {
        let inner = self.inner();
        let entry = inner.entries.get(&presented.id)?;
        let counts = presented.is(&entry.hash) && now < entry.ends_at && entry.found.elapsed() < FRESH;
        counts.then(|| entry.actor.clone())
    }

    fn keep(&self, credential: Credential, hash: [u8; 32], found: Instant) -> Actor {
        let actor = Actor {
            name: format!("{} ({})", credential.name, credential.id),
            role: credential.role,
            via: Via::AdminApi,
        };
        let revoked = credential.revoked_at.unwrap_or(credential.expires_at);
        let entry = Entry {
            actor: actor.clone(),
            hash,
            ends_at: credential.expires_at.min(revoked),
            found,
        };
        let mut inner = self.inner();
        // It was read before something was decided.
        if inner.forgotten.is_some_and(|at| found <= at) {
            return actor;
        }
        if inner.entries.len() >= MOST {
            inner.entries.clear();
        }
        inner.entries.insert(credential.id, entry);
        actor
    }

    /// Something was decided: all are asked for again.
    pub fn forget(&self) {
        let mut inner = self.inner();
        inner.entries.clear();
        inner.forgotten = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{insert, revoke};
    use super::super::secret::Secret;
    use super::*;
    use crate::audit::Role;
    use crate::store::Store;

    const NOW: UnixSeconds = UnixSeconds(1_769_781_900);

    #[tokio::test]
    async fn one_that_counted_a_moment_ago_counts_until_it_ends_or_something_is_decided() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        let secret = Secret::draw().unwrap();
        let credential = Credential {
            id: secret.id().to_owned(),
            name: "anna".to_owned(),
            role: Role::Operator,
            created_by: "root".to_owned(),
            created_at: NOW,
            expires_at: UnixSeconds(NOW.0 + 60),
            revoked_at: None,
            state: CredentialState::Valid,
        };
        let mut tx = store.begin().await.unwrap();
        insert(&mut tx, &credential, &secret.hash()).await.unwrap();
        tx.commit().await.unwrap();
        let known = Known::default();
        let (text, other) = (secret.text(), Secret::draw().unwrap().text());
        let shown = Presented::parse(&text).unwrap();
        // The same id with another secret.
        let crossed = format!("vea_{}_{}", secret.id(), other.splitn(3, '_').last().unwrap());
        let crossed = Presented::parse(&crossed).unwrap();
        let ask =
            async |shown: &Presented, now| known.authenticate(store.reader(), shown, now).await.unwrap();
        assert!(ask(&crossed, NOW).await.is_none());
        let actor = ask(&shown, NOW).await.unwrap();
        assert_eq!((actor.role, actor.via), (Role::Operator, Via::AdminApi));
        let read = Instant::now();
        assert_eq!(known.keep(credential.clone(), secret.hash(), read), actor);
        assert!(read.elapsed() >= FRESH || known.recent(&shown, NOW) == Some(actor));
        assert!(known.recent(&crossed, NOW).is_none() && ask(&crossed, NOW).await.is_none());
        assert!(known.recent(&shown, credential.expires_at).is_none());
        assert!(ask(&shown, credential.expires_at).await.is_none());
        // Taken back: once that is told, and after a moment without a word.
        let mut tx = store.begin().await.unwrap();
        revoke(&mut tx, secret.id(), NOW).await.unwrap();
        tx.commit().await.unwrap();
        known.forget();
        assert!(ask(&shown, NOW).await.is_none());
        // What was read before it was told is not kept, what is read after is.
        known.keep(credential.clone(), secret.hash(), read);
        assert!(known.recent(&shown, NOW).is_none());
        let read = Instant::now();
        known.keep(credential, secret.hash(), read);
        assert!(read.elapsed() >= FRESH || known.recent(&shown, NOW).is_some());
        tokio::time::sleep(FRESH).await;
        assert!(ask(&shown, NOW).await.is_none());
    }
}
