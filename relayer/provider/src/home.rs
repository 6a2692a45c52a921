//! The daemon's directory: where everything lies, and how files get there (whole, private, or not at all).

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hpc_schema::id::ClusterId;

/// The longest secret: keys, passwords and credentials are far shorter.
const MAX_SECRET: u64 = 64 * 1024;

/// Paths within the daemon's directory.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    /// `DIR` of `--home DIR`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// `config.yaml`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.0.join("config.yaml")
    }

    /// Certificate of the CA, PEM.
    #[must_use]
    pub fn ca_cert(&self) -> PathBuf {
        self.0.join("ca/ca.crt")
    }

    /// Key of the CA, PKCS#8 PEM.
    #[must_use]
    pub fn ca_key(&self) -> PathBuf {
        self.0.join("ca/ca.key")
    }

    /// Certificates of other CAs (`*.crt`, PEM) whose nodes are let in as well.
    #[must_use]
    pub fn trusted_cas(&self) -> PathBuf {
        self.0.join("ca/trusted")
    }

    /// Certificate of the gateway, PEM.
    #[must_use]
    pub fn server_cert(&self) -> PathBuf {
        self.0.join("gateway/server.crt")
    }

    /// Key of the gateway, PKCS#8 PEM.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.0.join("gateway/server.key")
    }

    /// Seed of the key that signs tokens, base64.
    #[must_use]
    pub fn token_key(&self) -> PathBuf {
        self.0.join("keys/token.key")
    }

    /// Seed of the key that takes its place: drawn, and not yet in use.
    #[must_use]
    pub fn next_token_key(&self) -> PathBuf {
        self.0.join("keys/token.key.next")
    }

    /// Held while the token key is replaced.
    #[must_use]
    pub fn token_key_lock(&self) -> PathBuf {
        self.0.join("keys/token.lock")
    }

    /// Public keys that signed tokens before it, each with the second until which they count.
    #[must_use]
    pub fn former_token_keys(&self) -> PathBuf {
        self.0.join("keys/token.former")
    }

    /// The clusters' task keys.
    #[must_use]
    pub fn task_keys(&self) -> PathBuf {
        self.0.join("keys/tasks")
    }

    /// Seed of the key that signs a cluster's commands and tasks, base64.
    #[must_use]
    pub fn task_key(&self, cluster: &ClusterId) -> PathBuf {
        self.task_keys().join(format!("{cluster}.key"))
    }

    /// Seed of the key that takes its place: drawn, and not yet in use.
    #[must_use]
    pub fn next_task_key(&self, cluster: &ClusterId) -> PathBuf {
        self.task_keys().join(format!("{cluster}.key.next"))
    }

    /// The keyring with the chain keys.
    #[must_use]
    pub fn keyring(&self) -> PathBuf {
        self.0.join("keys/keyring")
    }

    /// Where the daemon hears that another process has decided something.
    #[must_use]
    pub fn wake_socket(&self) -> PathBuf {
        self.0.join("wake.sock")
    }

    /// The SQLite database.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.0.join("store/provider.db")
    }
}

/// Makes a home, which only its owner may enter. Its parents, where they are missing, are others' to enter as well (by
/// umask): root makes it, and a service's user gets it.
///
/// # Errors
/// As the file system says.
pub fn make_home_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    make_private_dir(dir)
}

/// Makes a directory that only its owner may enter, with its parents.
///
/// # Errors
/// As the file system says.
pub fn make_private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Writes a new file, mode 0600, whole or not at all; refuses to replace one.
///
/// # Errors
/// `AlreadyExists`, or as the file system says.
pub fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    // A hard link, unlike a rename, never replaces what is there.
    let linked = fs::hard_link(&temporary, path);
    let removed = fs::remove_file(&temporary);
    linked.and(removed)?;
    sync_parent(path)
}

/// Writes a file, mode 0600, whole or not at all, in place of the former.
///
/// # Errors
/// As the file system says.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

fn write_temporary(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(temporary)
}

/// Puts a file in another one's place, durably.
///
/// # Errors
/// As the file system says.
pub fn promote(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Writes a secret's content over another one, durably; both are there then.
///
/// # Errors
/// As the file system says.
pub fn copy_private(from: &Path, to: &Path) -> io::Result<()> {
    replace_private(to, read_secret(from)?.as_bytes())
}

/// Removes a file, durably.
///
/// # Errors
/// As the file system says.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    sync_parent(path)
}

/// Locks a file, made if it is not there, until what is given is dropped; none if another process has it.
///
/// # Errors
/// As the file system says.
pub fn try_lock(path: &Path) -> io::Result<Option<fs::File>> {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    locked(options.open(path)?)
}

/// The same of a file or directory that is there: none is made, which would be of whoever comes first.
///
/// # Errors
/// As the file system says.
pub fn try_lock_existing(path: &Path) -> io::Result<Option<fs::File>> {
    locked(fs::File::open(path)?)
}

fn locked(lock: fs::File) -> io::Result<Option<fs::File>> {
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Has the name of a file or a directory on disk.
///
/// # Errors
/// As the file system says.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    // That of a bare name is "".
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Reads a secret; refuses one that others may read, and what is too long to be one.
///
/// # Errors
/// As the file system says, `PermissionDenied` with the remedy, or `FileTooLarge`.
pub fn read_secret(path: &Path) -> io::Result<zeroize::Zeroizing<String>> {
    let file = fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "others may read this secret (mode {:o}); chmod 600 it",
                mode & 0o777
            ),
        ));
    }
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    let read = file.take(MAX_SECRET.saturating_add(1)).read_to_end(&mut bytes)?;
    // First: the cut may lie within a character.
    if u64::try_from(read).unwrap_or(u64::MAX) > MAX_SECRET {
        let what = format!("longer than {MAX_SECRET} bytes; the file must hold the secret and nothing else");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not valid UTF-8"))?;
    Ok(zeroize::Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_whole_and_never_replaced_by_create() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        create_private(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            create_private(&path, b"two").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(&**read_secret(&path).unwrap(), "one");
        replace_private(&path, b"two").unwrap();
        assert_eq!(&**read_secret(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_bare_name_is_a_file_of_the_present_folder() {
        // No other test uses the name, and none may change the folder of all.
        let name = PathBuf::from(format!("bare-{}.tmp", std::process::id()));
        let made = create_private(&name, b"one").and_then(|()| replace_private(&name, b"two"));
        let read = read_secret(&name);
        remove(&name).unwrap();
        made.unwrap();
        assert_eq!(&**read.unwrap(), "two");
    }

    #[test]
    fn a_home_is_private_and_its_parents_are_as_any_folder() {
        let dir = tempfile::tempdir().unwrap();
        let [home, plain] = ["virtengine/provider", "plain"].map(|name| dir.path().join(name));
        make_home_dir(&home).unwrap();
        make_home_dir(&home).unwrap();
        fs::create_dir(&plain).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home), 0o700);
        assert_eq!(mode(home.parent().unwrap()), mode(&plain));
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        create_private(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_secret(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn what_is_too_long_for_a_secret_is_refused_and_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credential");
        let most = usize::try_from(MAX_SECRET).unwrap();
        create_private(&path, &vec![b'x'; most]).unwrap();
        assert_eq!(read_secret(&path).unwrap().len(), most);
        // Also where the last byte that is read is the first one of a character.
        let many = format!("{}é", "x".repeat(most));
        for long in [vec![b'x'; most + 1], many.into_bytes()] {
            replace_private(&path, &long).unwrap();
            let said = read_secret(&path).unwrap_err().to_string();
            assert!(said.contains("longer than 65536 bytes"), "{said}");
        }
        replace_private(&path, &[b'x', 0xff]).unwrap();
        let said = read_secret(&path).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::InvalidData, "{said}");
    }
}
