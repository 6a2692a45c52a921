//! Whoever seals a keyring anew does so alone, and what one that was killed has left goes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use super::file::{FileError, sync};
use super::keyring::Keyring;
use super::keyring_error::KeyringError;

/// Beside the keys, which it outlives; hidden, so that no backup has it.
const LOCK: &str = ".lock";

impl Keyring {
    /// Held by who adds or removes a key: several may.
    pub(super) fn beside(&self) -> Result<File, KeyringError> {
        self.held(File::try_lock_shared)
    }

    /// Held by who changes them all.
    pub(super) fn alone(&self) -> Result<File, KeyringError> {
        self.held(File::try_lock)
    }

    fn held(&self, lock: impl Fn(&File) -> Result<(), TryLockError>) -> Result<File, KeyringError> {
        let path = self.dir().join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let io = |source| FileError::Io {
            path: path.clone(),
            source,
        };
        let file = options.open(&path).map_err(io)?;
        match lock(&file) {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(KeyringError::Busy(self.dir().to_owned())),
            Err(TryLockError::Error(e)) => Err(io(e).into()),
        }
    }

    /// Removes the unfinished files of calls that were killed; their names. Nothing while another call is at work.
    ///
    /// # Errors
    /// [`KeyringError::File`].
    pub fn sweep(&self) -> Result<Vec<String>, KeyringError> {
        // Who only looks makes no lock.
        if self.unfinished()?.is_empty() {
            return Ok(Vec::new());
        }
        let _alone = match self.alone() {
            Err(KeyringError::Busy(_)) => return Ok(Vec::new()),
            held => held?,
        };
        let mut gone = Vec::new();
        for (name, path) in self.unfinished()? {
            fs::remove_file(&path).map_err(|source| FileError::Io {
                path: path.clone(),
                source,
            })?;
            sync(&path)?;
            gone.push(name);
        }
        Ok(gone)
    }

    /// Files of ours that were to become a key's: `<name>.key.<pid>.tmp`.
    fn unfinished(&self) -> Result<Vec<(String, PathBuf)>, KeyringError> {
        let io = |source| FileError::Io {
            path: self.dir().to_owned(),
            source,
        };
        let user = rustix::process::geteuid().as_raw();
        let mut found = Vec::new();
        for entry in fs::read_dir(self.dir()).map_err(io)? {
            let entry = entry.map_err(io)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if !self.is_unfinished(&name) {
                continue;
            }
            // It may have its place by now, or be gone.
            let Ok(meta) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if meta.is_file() && meta.uid() == user {
                found.push((name, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn is_unfinished(&self, name: &str) -> bool {
        let parts = name.strip_suffix(".tmp").and_then(|rest| rest.rsplit_once('.'));
        let key = parts.and_then(|(file, pid)| Some((file.strip_suffix(".key")?, pid)));
        key.is_some_and(|(key, pid)| self.path(key).is_ok() && pid.parse::<u32>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, LocalKey, Passphrase};
    use super::*;

    fn passphrase(text: &str) -> Passphrase {
        Passphrase::new(text.to_owned())
    }

    fn sealed(dir: &std::path::Path) -> Keyring {
        let ring = Keyring::open(dir, Backend::File).unwrap();
        let key = LocalKey::from_secret(&[7; 32]).unwrap();
        ring.add("relayer", &key, || Ok(passphrase("correct horse")))
            .unwrap();
        ring
    }

    #[test]
    fn a_keyring_that_is_sealed_anew_is_changed_by_nobody_else_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("keys");
        let ring = sealed(&dir);
        let (former, next) = (passphrase("correct horse"), passphrase("battery staple"));
        let resealed = ring.reseal(&former, &next).unwrap();
        let busy = |e: KeyringError| matches!(e, KeyringError::Busy(at) if at == dir);
        assert!(busy(
            ring.reseal(&former, &passphrase("another one")).unwrap_err()
        ));
        let key = LocalKey::from_secret(&[8; 32]).unwrap();
        let add = || ring.add("second", &key, || Ok(passphrase("correct horse")));
        assert!(busy(add().unwrap_err()) && busy(ring.remove("relayer").unwrap_err()));
        resealed.put().unwrap();
        assert!(ring.key("relayer", |_| Ok(next.clone())).is_ok());
        add().unwrap();
    }

    #[test]
    fn what_a_killed_call_has_left_goes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("keys");
        let ring = sealed(&dir);
        assert!(ring.sweep().unwrap().is_empty());
        fs::write(dir.join("relayer.key.4711.tmp"), "{}").unwrap();
        let others = [
            "relayer.key.tmp",
            "relayer.key.47x.tmp",
            "relayer.key.4711",
            "re layer.key.1.tmp",
            ".key.1.tmp",
            "notes.tmp",
        ];
        for name in others {
            fs::write(dir.join(name), "{}").unwrap();
        }
        fs::create_dir(dir.join("relayer.key.1.tmp")).unwrap();
        std::os::unix::fs::symlink(dir.join("relayer.key"), dir.join("relayer.key.2.tmp")).unwrap();
        // One that is at work has its own there.
        let next = passphrase("battery staple");
        let resealed = ring.reseal(&passphrase("correct horse"), &next).unwrap();
        assert!(ring.sweep().unwrap().is_empty());
        resealed.put().unwrap();
        assert_eq!(ring.sweep().unwrap(), ["relayer.key.4711.tmp"]);
        assert!(ring.sweep().unwrap().is_empty());
        for name in others.iter().chain(&["relayer.key.1.tmp", "relayer.key.2.tmp"]) {
            assert!(fs::symlink_metadata(dir.join(name)).is_ok(), "{name}");
        }
        assert!(ring.key("relayer", |_| Ok(next.clone())).is_ok());
    }
}
