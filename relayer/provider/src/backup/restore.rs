use std::fs;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use hpc_chain::keys::{OpenReader, Passphrase};

use super::archive::{self, BackupError, Head};
use super::aside::{self, Aside, RESTORE};
use super::restored::{MARKER, mark};
use crate::audit::Actor;
use crate::config::Config;
use crate::home::{self, Home};
use crate::store::Store;

/// Unpacks a backup into an empty directory, the configuration last: where it lies, all is there. Where no store is among it,
/// word that `by` has done it is.
///
/// # Errors
/// [`BackupError`]; then the directory holds nothing that a daemon would start from.
pub async fn restore(
    home: &Home,
    from: &Path,
    passphrase: &Passphrase,
    by: &Actor,
) -> Result<Head, BackupError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { path, source }
    };
    home::make_home_dir(home.dir()).map_err(failed(home.dir()))?;
    match home::sync_parent(home.dir()) {
        // Whoever may not read the folder in which it lies cannot sync that; mostly it was there then.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        synced => synced.map_err(failed(home.dir()))?,
    }
    for entry in fs::read_dir(home.dir()).map_err(failed(home.dir()))? {
        let name = entry.map_err(failed(home.dir()))?.file_name();
        // Left by a restore that was interrupted; nothing refers to it.
        if !aside::is(&name.to_string_lossy(), RESTORE) {
            return Err(BackupError::Used(home.dir().to_owned()));
        }
    }
    // Not sooner: whatever has such a name elsewhere is not ours.
    aside::sweep_of(home, &[RESTORE]);
    let staging = Aside::make(home.dir(), RESTORE).map_err(failed(home.dir()))?;
    let restored: Result<Head, BackupError> = async {
        let head = unpack(staging.path(), from, passphrase)?;
        check(&Home::new(staging.path()), &head).await?;
        if head.postgres {
            mark(staging.path(), by, from, &head)?;
        }
        publish(staging.path(), home.dir(), &head).map_err(failed(home.dir()))?;
        Ok(head)
    }
    .await;
    let removed = staging.remove();
    let head = restored?;
    removed.map_err(failed(home.dir()))?;
    Ok(head)
}

fn unpack(to: &Path, from: &Path, passphrase: &Passphrase) -> Result<Head, BackupError> {
    let failed = |source| BackupError::File {
        path: from.to_owned(),
        source,
    };
    let mut input = BufReader::new(fs::File::open(from).map_err(failed)?);
    let (head, line) = Head::read(&mut input)?;
    let mut sealed = OpenReader::new(input, passphrase, &line).map_err(failed)?;
    while let Some((path, size)) = archive::next(&mut sealed).map_err(failed)? {
        let path = to.join(path);
        take(&path, &mut sealed, size).map_err(|source| BackupError::File { path, source })?;
    }
    // Only the end says that nothing was cut off.
    let mut rest = [0; 1];
    if sealed.read(&mut rest).map_err(failed)? != 0 {
        return Err(BackupError::Content("something follows its end".into()));
    }
    Ok(head)
}

fn take(path: &Path, from: &mut impl io::Read, size: u64) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        home::make_private_dir(dir)?;
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    if io::copy(&mut from.take(size), &mut file)? != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.sync_all()
}

/// Store, configuration and head must speak of the same contract, and the store must be sound and of a version that this
/// program knows.
async fn check(home: &Home, head: &Head) -> Result<(), BackupError> {
    let config = Config::load(&home.config(), std::iter::empty())
        .map_err(|e| BackupError::Content(format!("its config.yaml: {e}")))?;
    if head.postgres {
        // The daemon holds its store against the configuration as it starts.
        let same = config.chain.id == head.chain_id || config.chain.id.is_empty();
        let why = || BackupError::Content("its config.yaml names another chain than its head".into());
        return if same { Ok(()) } else { Err(why()) };
    }
    let store = Store::open(&home.store()).await?;
    let looked = async {
        store.quick_check().await?;
        store.bound().await
    }
    .await;
    store.close().await;
    let bound = looked?;
    let named = (head.chain_id.as_str(), head.contract.as_str());
    if let Some((chain, contract)) = &bound
        && (chain.as_str(), contract.as_str()) != named
    {
        let what = format!("its store belongs to contract {contract} on {chain}, its head says otherwise");
        return Err(BackupError::Content(what));
    }
    let chain = &config.chain;
    // What the environment says comes in at the start, and is held against the store there.
    let differs = |configured: &str, named: &str| !configured.is_empty() && configured != named;
    if bound.is_some() && (differs(&chain.id, named.0) || differs(&chain.contract, named.1)) {
        let what = format!(
            "its config.yaml names contract {} on chain {:?}, its store belongs to {} on {:?}",
            chain.contract, chain.id, named.1, named.0
        );
        return Err(BackupError::Content(what));
    }
    Ok(())
}

/// Has the names in a folder, and in those in it, on disk: a file's own sync says nothing of its name.
fn sync_folders(of: &Path) -> io::Result<()> {
    for entry in fs::read_dir(of)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    fs::File::open(of)?.sync_all()
}

fn publish(staging: &Path, home: &Path, head: &Head) -> io::Result<()> {
    sync_folders(staging)?;
    let first = if head.postgres { MARKER } else { "store" };
    for entry in [first, "ca", "gateway", "keys", "config.yaml"] {
        fs::rename(staging.join(entry), home.join(entry))?;
    }
    fs::File::open(home)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::{BufWriter, Write as _};

    use hpc_chain::keys::SealWriter;

    use super::*;

    /// A backup of a gateway whose store is in PostgreSQL, with one more file.
    fn sealed(to: &Path, passphrase: &Passphrase, more: Option<&str>) {
        let made = "2026-01-01T00:00:00Z".to_owned();
        let line = Head::new("hpc-1".into(), "wasm1x".into(), made, true)
            .line()
            .unwrap();
        let mut out = fs::File::create(to).unwrap();
        out.write_all(&line).unwrap();
        let mut sealed = SealWriter::new(BufWriter::new(out), passphrase, &line).unwrap();
        let files = ["ca/ca.key", "gateway/server.key", "keys/token.key", "config.yaml"];
        for file in files.into_iter().chain(more) {
            archive::put(&mut sealed, file, 0, io::empty()).unwrap();
        }
        archive::end(&mut sealed).unwrap();
        sealed.finish().unwrap().flush().unwrap();
    }

    #[tokio::test]
    async fn a_restore_of_which_no_word_can_be_left_leaves_nothing_and_can_be_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let passphrase = Passphrase::new("correct horse battery".to_owned());
        let by = Actor::command_line("alice");
        let (unfit, file) = (dir.path().join("unfit.backup"), dir.path().join("site.backup"));
        // A folder is where the word belongs.
        sealed(&unfit, &passphrase, Some("restored.json/in-the-way"));
        let failed = restore(&home, &unfit, &passphrase, &by).await;
        assert!(
            matches!(&failed, Err(BackupError::File { path, .. }) if path.ends_with(MARKER)),
            "{failed:?}"
        );
        assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0);
        sealed(&file, &passphrase, None);
        restore(&home, &file, &passphrase, &by).await.unwrap();
        assert!(home.config().exists());
        let word = fs::read_to_string(home.dir().join(MARKER)).unwrap();
        assert!(word.contains("alice") && word.contains("site.backup"), "{word}");
    }

    #[tokio::test]
    async fn a_restore_killed_while_it_puts_in_place_what_it_unpacked_starts_no_daemon_and_is_not_built_upon()
    {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let passphrase = Passphrase::new("correct horse battery".to_owned());
        let (by, file) = (Actor::command_line("alice"), dir.path().join("site.backup"));
        sealed(&file, &passphrase, None);
        restore(&home, &file, &passphrase, &by).await.unwrap();
        // The configuration comes last.
        fs::remove_file(home.config()).unwrap();
        assert!(Config::load(&home.config(), std::iter::empty()).is_err());
        let left = || fs::read_dir(home.dir()).unwrap().count();
        let before = left();
        let again = restore(&home, &file, &passphrase, &by).await;
        assert!(
            matches!(&again, Err(BackupError::Used(at)) if at == home.dir()),
            "{again:?}"
        );
        assert_eq!((left(), home.config().exists()), (before, false));
    }
}
