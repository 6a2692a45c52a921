use std::fs::File;
use std::path::Path;
use std::time::Duration;

use sqlx::postgres::PgPool;
use tokio::time::{Instant, sleep, timeout};

use super::{BUSY, Store, StoreError, Write};
use crate::db::{self, Held};
use crate::home;

/// How often it is asked whether the account is free.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// An account that signs is this process's alone for as long as this is there.
#[derive(Debug)]
pub struct SigningTurn {
    _lock: Lock,
}

/// It ends with what it is held by.
#[derive(Debug)]
enum Lock {
    Session(#[expect(dead_code, reason = "it is held")] Held),
    Folder(#[expect(dead_code, reason = "it is held")] File),
}

impl Store {
    /// Waits until no other process signs by an account that several have, the operator's: of a shared store another gateway,
    /// of one in a folder the command line beside the daemon, where one account is waited for like another. None if that takes
    /// longer than `patience`.
    ///
    /// A session that breaks ends the turn early. Then two may want one sequence, of which the chain takes one.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn signing_turn(
        &self,
        account: &str,
        patience: Duration,
    ) -> Result<Option<SigningTurn>, StoreError> {
        let until = Instant::now() + patience;
        match &self.write {
            Write::Sqlite { writer, .. } => by_folder(writer.file(), until).await,
            Write::Postgres { aside, .. } => by_session(aside, account, until).await,
        }
    }
}

/// By a lock on the folder of this database.
async fn by_folder(database: &Path, until: Instant) -> Result<Option<SigningTurn>, StoreError> {
    let folder = database.parent().unwrap_or(Path::new("."));
    loop {
        if let Some(lock) = home::try_lock_existing(folder)? {
            return Ok(Some(SigningTurn {
                _lock: Lock::Folder(lock),
            }));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        sleep(ASK_EVERY).await;
    }
}

/// By a lock of the account's name.
async fn by_session(
    aside: &PgPool,
    account: &str,
    until: Instant,
) -> Result<Option<SigningTurn>, StoreError> {
    let mut session = Held::postgres(aside.acquire().await?);
    session.close_on_drop();
    let name = format!("sign {account}");
    loop {
        let asked = db::query("SELECT pg_try_advisory_lock(hashtextextended(?, 0)) AS taken")
            .bind(&name)
            .fetch_one(&mut *session);
        // A server that has fallen silent never answers.
        let row = timeout(BUSY, asked)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        if row.try_get::<bool, _>("taken")? {
            return Ok(Some(SigningTurn {
                _lock: Lock::Session(session),
            }));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        sleep(ASK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_command_line_waits_while_the_daemon_signs_and_writes_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store/provider.db");
        let daemon = Store::open(&path).await.unwrap();
        let beside = Store::open(&path).await.unwrap();
        let (patience, now) = (Duration::from_secs(20), Duration::ZERO);
        let held = daemon.signing_turn("a", patience).await.unwrap().unwrap();
        assert!(beside.signing_turn("a", now).await.unwrap().is_none());
        assert!(daemon.signing_turn("a", now).await.unwrap().is_none());
        beside.begin().await.unwrap().rollback().await.unwrap();
        let waits = tokio::spawn(async move { beside.signing_turn("a", patience).await });
        sleep(Duration::from_millis(500)).await;
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.await.unwrap().unwrap().is_some());
        // Whoever has it leaves it with its end.
        assert!(daemon.signing_turn("a", patience).await.unwrap().is_some());
    }
}
