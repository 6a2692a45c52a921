use std::fs;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use hpc_chain::keys::{OpenReader, Passphrase};

use super::archive::{self, BackupError, Head};
use crate::config::Config;
use crate::home::{self, Home};
use crate::store::Store;

/// Unpacks a backup into an empty directory, the configuration last: where it lies, all is there.
///
/// # Errors
/// [`BackupError`]; then the directory holds nothing that a daemon would start from.
pub async fn restore(home: &Home, from: &Path, passphrase: &Passphrase) -> Result<Head, BackupError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { path, source }
    };
    home::make_home_dir(home.dir()).map_err(failed(home.dir()))?;
    for entry in fs::read_dir(home.dir()).map_err(failed(home.dir()))? {
        let name = entry.map_err(failed(home.dir()))?.file_name();
        // Left by a restore that was interrupted; nothing refers to it.
        if !name.to_string_lossy().starts_with(".restore-") {
            return Err(BackupError::Used(home.dir().to_owned()));
        }
    }
    let staging = home.dir().join(format!(".restore-{}", std::process::id()));
    home::make_private_dir(&staging).map_err(failed(&staging))?;
    let restored: Result<Head, BackupError> = async {
        let head = unpack(&staging, from, passphrase)?;
        check(&Home::new(&staging), &head).await?;
        publish(&staging, home.dir(), &head).map_err(failed(home.dir()))?;
        Ok(head)
    }
    .await;
    let removed = fs::remove_dir_all(&staging);
    let head = restored?;
    removed.map_err(failed(&staging))?;
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

fn publish(staging: &Path, home: &Path, head: &Head) -> io::Result<()> {
    let store = (!head.postgres).then_some("store");
    for entry in store.into_iter().chain(["ca", "gateway", "keys", "config.yaml"]) {
        fs::rename(staging.join(entry), home.join(entry))?;
    }
    fs::File::open(home)?.sync_all()
}
