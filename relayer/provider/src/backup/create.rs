use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hpc_chain::keys::{Passphrase, SealWriter};
use hpc_schema::time::Rfc3339;

use super::archive::{self, BackupError, Head};
use super::aside::{self, Aside, BACKUP};
use super::room;
use crate::clock;
use crate::home::Home;
use crate::spool;
use crate::store::Store;

/// What of the directory is taken beside the store.
const ENTRIES: [&str; 4] = ["ca", "gateway", "keys", "config.yaml"];

/// Writes a backup of the directory to `output`, which must not be there; the daemon may run meanwhile. A store in PostgreSQL
/// is not part of it.
///
/// # Errors
/// [`BackupError`]; then there is no file.
pub async fn create(
    home: &Home,
    store: &Store,
    output: &Path,
    passphrase: &Passphrase,
) -> Result<Head, BackupError> {
    create_within(home, store, output, passphrase, room::free).await
}

/// The same with what tells how many bytes are free.
async fn create_within(
    home: &Home,
    store: &Store,
    output: &Path,
    passphrase: &Passphrase,
    free: fn(&Path) -> io::Result<u64>,
) -> Result<Head, BackupError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { path, source }
    };
    if fs::symlink_metadata(output).is_ok() {
        return Err(file(output)(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "is there already; a backup never overwrites",
        )));
    }
    // First: what it frees is room.
    aside::sweep(home);
    let postgres = store.is_shared();
    if !postgres {
        let left = free(home.dir()).map_err(file(home.dir()))?;
        room::check(home.dir(), output, store.copy_size().await?, left)?;
    }
    let folder = Aside::make(home.dir(), BACKUP).map_err(file(home.dir()))?;
    let snapshot = folder.path().join("provider.db");
    let made = async {
        let mut journal = Vec::new();
        if !postgres {
            // Before the copy: what goes from here into the database meanwhile is in both, and counts once.
            journal = spool::unapplied(store).await?;
            store.copy_to(&snapshot).await?;
        }
        let (chain_id, contract) = store.bound().await?.unwrap_or_default();
        let created_at = Rfc3339::from_unix(clock::now().0, 0)
            .map_err(|_| BackupError::Content("the clock is wrong".into()))?;
        let head = Head::new(chain_id, contract, created_at.to_string(), postgres);
        let copied = (!postgres).then_some((snapshot.as_path(), journal.as_slice()));
        let whole = write(home, copied, output, passphrase, &head);
        whole.map_err(file(output))?;
        Ok(head)
    }
    .await;
    // Best effort: what stays is a copy of the store for its owner alone, and goes with the next backup or start.
    drop(folder.remove());
    made
}

fn write(
    home: &Home,
    copied: Option<(&Path, &[u8])>,
    output: &Path,
    passphrase: &Passphrase,
    head: &Head,
) -> io::Result<()> {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let temporary = output.with_file_name(format!(".{name}.{}", std::process::id()));
    let result = (|| {
        let mut out = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let line = head.line().map_err(io::Error::other)?;
        out.write_all(&line)?;
        let mut sealed = SealWriter::new(BufWriter::new(out), passphrase, &line)?;
        if let Some((snapshot, journal)) = copied {
            put(&mut sealed, "store/provider.db", snapshot)?;
            let size = u64::try_from(journal.len()).map_err(io::Error::other)?;
            archive::put(&mut sealed, &format!("store/{}", spool::JOURNAL), size, journal)?;
        }
        for path in files(home)? {
            let relative = path.strip_prefix(home.dir()).map_err(io::Error::other)?;
            let relative = relative
                .to_str()
                .ok_or_else(|| io::Error::other("a file's name is no text"))?;
            put(&mut sealed, relative, &path)?;
        }
        archive::end(&mut sealed)?;
        let out = sealed.finish()?.into_inner().map_err(io::Error::other)?;
        out.sync_all()?;
        // A hard link, unlike a rename, never replaces what is there.
        fs::hard_link(&temporary, output)
    })();
    let removed = fs::remove_file(&temporary);
    result?;
    removed
}

fn put(out: &mut impl io::Write, name: &str, path: &Path) -> io::Result<()> {
    let file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    archive::put(out, name, size, io::Read::take(file, size))
}

/// Every file of the entries, in order; hidden ones are somebody's temporary files.
fn files(home: &Home) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = ENTRIES.iter().map(|e| home.dir().join(e)).collect();
    while let Some(path) = waiting.pop() {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        } else if meta.is_file() && !hidden {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home;

    #[tokio::test]
    async fn a_backup_for_which_the_disk_has_no_room_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        for entry in ["ca", "gateway", "keys"] {
            home::make_private_dir(&home.dir().join(entry)).unwrap();
        }
        home::create_private(&home.config(), b"").unwrap();
        let store = Store::open(&home.store()).await.unwrap();
        let left = home.dir().join(".backup-4711");
        fs::create_dir(&left).unwrap();
        let output = dir.path().join("site.backup");
        let passphrase = Passphrase::new("correct horse battery".to_owned());
        let names = || {
            let entries = fs::read_dir(home.dir()).unwrap();
            let mut names: Vec<String> = entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let full = create_within(&home, &store, &output, &passphrase, |_| Ok(0)).await;
        assert!(matches!(full, Err(BackupError::Room(_))), "{full:?}");
        assert!(!output.exists());
        assert_eq!(names(), ["ca", "config.yaml", "gateway", "keys", "store"]);
        create_within(&home, &store, &output, &passphrase, |_| Ok(u64::MAX))
            .await
            .unwrap();
        assert!(output.exists());
        assert_eq!(names(), ["ca", "config.yaml", "gateway", "keys", "store"]);
    }
}
