use std::io;
use std::path::{Path, PathBuf};

use hpc_schema::key::AgentKey;

use super::{KeyFileError, Store};
use crate::files::{Durability, FileError, Replace, create_directory, directory_of, write};

/// What `keygen` made.
#[derive(Debug)]
pub struct Generated {
    /// `agent.key`, 0600.
    pub key_path: PathBuf,
    /// `agent.pub`, 0644.
    pub public_path: PathBuf,
    /// The public key.
    pub public: AgentKey,
}

/// Makes `agent.key` and `agent.pub` in `dir` (created if missing).
///
/// # Errors
/// IO, or [`KeyFileError::Exists`] unless `force`.
pub fn generate(dir: &Path, force: bool) -> Result<Generated, KeyFileError> {
    generate_in(dir, force, &Store::File)
}

/// The same with a key that lives in `store`.
///
/// # Errors
/// IO, [`KeyFileError::Exists`] unless `force`, a device that refuses.
pub fn generate_in(dir: &Path, force: bool, store: &Store) -> Result<Generated, KeyFileError> {
    let replace = if force { Replace::Yes } else { Replace::Never };
    generate_at(&dir.join("agent.key"), &dir.join("agent.pub"), replace, store)
}

/// Makes a key pair in two files.
pub(super) fn generate_at(
    key_path: &Path,
    public_path: &Path,
    replace: Replace,
    store: &Store,
) -> Result<Generated, KeyFileError> {
    create_directory(directory_of(key_path))?;
    if replace == Replace::Never && key_path.exists() {
        // Said before a device makes a key that nobody would use.
        let path = key_path.display().to_string();
        return Err(KeyFileError::Exists { path });
    }
    let made = store.make()?;
    let text = made.to_text()?;
    write(key_path, text.as_bytes(), 0o600, replace, Durability::Synced).map_err(exists)?;
    // The private key decides; a public file beside no key is a leftover.
    write_public(public_path, &made.public())?;
    Ok(Generated {
        key_path: key_path.to_owned(),
        public_path: public_path.to_owned(),
        public: made.public(),
    })
}

/// One line of base64, for people and the provider.
pub(super) fn write_public(path: &Path, key: &AgentKey) -> Result<(), FileError> {
    let line = format!("{key}\n");
    write(path, line.as_bytes(), 0o644, Replace::Yes, Durability::Synced)
}

fn exists(e: FileError) -> KeyFileError {
    if e.source.kind() == io::ErrorKind::AlreadyExists {
        KeyFileError::Exists {
            path: e.path.display().to_string(),
        }
    } else {
        e.into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::key::load;

    #[test]
    fn keygen_writes_a_private_key_and_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(&dir.path().join("keys"), false).unwrap();
        assert_eq!(
            fs::metadata(&made.key_path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let line = fs::read_to_string(&made.public_path).unwrap();
        assert_eq!(line, format!("{}\n", made.public));
        assert_eq!(load(&made.key_path).unwrap().public(), made.public);
    }

    #[test]
    fn keygen_never_overwrites_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let first = generate(dir.path(), false).unwrap();
        let e = generate(dir.path(), false).unwrap_err();
        assert!(matches!(e, KeyFileError::Exists { .. }), "{e}");
        assert!(e.to_string().contains("--force"));
        assert_eq!(load(&first.key_path).unwrap().public(), first.public);
        let second = generate(dir.path(), true).unwrap();
        assert_ne!(second.public, first.public);
        assert_eq!(load(&second.key_path).unwrap().public(), second.public);
    }

    #[test]
    fn a_key_made_by_root_belongs_to_the_owner_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let mut owner = rustix::process::geteuid().as_raw();
        if owner == 0 {
            owner = 4711;
            std::os::unix::fs::chown(dir.path(), Some(owner), Some(owner)).unwrap();
        }
        let made = generate(dir.path(), false).unwrap();
        for p in [&made.key_path, &made.public_path] {
            assert_eq!(fs::metadata(p).unwrap().uid(), owner);
        }
    }
}
