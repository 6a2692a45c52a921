//! A restore beside which there is no store yet to say so in: the daemon's first start puts it on record.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::archive::{BackupError, Head};
use crate::audit::{self, Actor, Entry};
use crate::clock;
use crate::home::{self, Home};
use crate::store::{Store, StoreError};

/// Where it waits, in the directory.
pub(super) const MARKER: &str = "restored.json";

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
struct Restored {
    /// UNIX milliseconds.
    at: u64,
    /// By whom, at the command line.
    by: String,
    /// The backup.
    file: String,
    /// When that was made.
    created_at: String,
}

/// Leaves word of a restore by `by` from `file` in what is to become the directory.
pub(super) fn mark(dir: &Path, by: &Actor, file: &Path, head: &Head) -> Result<(), BackupError> {
    let restored = Restored {
        at: clock::now_ms(),
        by: by.name.clone(),
        file: file.display().to_string(),
        created_at: head.created_at.clone(),
    };
    let path = dir.join(MARKER);
    serde_json::to_vec(&restored)
        .map_err(io::Error::other)
        .and_then(|text| home::replace_private(&path, &text))
        .map_err(|source| BackupError::File { path, source })
}

/// Appends what a restore has left to the audit log. One that cannot be read stays, and is no reason not to go on.
///
/// # Errors
/// If the store fails.
pub async fn tell(home: &Home, store: &Store) -> Result<(), StoreError> {
    let path = home.dir().join(MARKER);
    let read = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.and_then(|text| serde_json::from_slice::<Restored>(&text).map_err(io::Error::from)),
    };
    let restored = match read {
        Ok(restored) => restored,
        Err(e) => {
            tracing::warn!(error = %e, file = %path.display(), "a restore cannot be put on record; mend the file's owner and mode, or remove it once you have noted what it says");
            return Ok(());
        }
    };
    let entry = Entry {
        at: restored.at,
        by: Actor::command_line(restored.by),
        action: "backup.restore",
        target: restored.file,
        result: "done",
        detail: serde_json::json!({ "created_at": restored.created_at }),
    };
    let mut tx = store.begin().await?;
    audit::append(&mut tx, &entry).await?;
    tx.commit().await?;
    // Killed before this, it is told twice, which is better than never.
    if let Err(e) = home::remove(&path) {
        tracing::warn!(error = %e, file = %path.display(), "a restore that is on record will be put there again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_restore_is_on_record_once_with_who_did_it_and_when() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let store = Store::for_test(&dir.path().join("p.db")).await;
        tell(&home, &store).await.unwrap();
        let made = "2026-01-01T00:00:00Z";
        let head = Head::new("hpc-1".into(), "wasm1x".into(), made.into(), true);
        let alice = Actor::command_line("alice");
        mark(dir.path(), &alice, Path::new("site.backup"), &head).unwrap();
        for _ in 0..2 {
            tell(&home, &store).await.unwrap();
        }
        let rows = audit::page(store.reader(), 0, 10).await.unwrap();
        let [row] = rows.as_slice() else {
            panic!("{rows:?}");
        };
        assert_eq!(
            [&row.actor, &row.via, &row.action, &row.target, &row.result],
            ["alice", "command_line", "backup.restore", "site.backup", "done"]
        );
        assert!(row.detail.contains(made), "{}", row.detail);
        assert!(!dir.path().join(MARKER).exists());
        audit::verify(store.reader(), |_| {}).await.unwrap().unwrap();
        // What is no word of a restore keeps no daemon from its start.
        fs::write(dir.path().join(MARKER), "{").unwrap();
        tell(&home, &store).await.unwrap();
        assert_eq!(audit::head(store.reader()).await.unwrap().seq, 1);
    }
}
