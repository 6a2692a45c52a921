//! Another passphrase for a keyring.

use std::fs::File;

use zeroize::Zeroizing;

use super::backend::Backend;
use super::file::Written;
use super::keyring::{Keyring, Secret, bound};
use super::keyring_error::{KeyringError, MIN_PASSPHRASE};
use super::seal::{self, Passphrase};

/// The keys of a keyring under another passphrase: on disk, and not in their places yet.
#[derive(Debug)]
pub struct Resealed {
    done: Vec<String>,
    next: Vec<(String, Written)>,
    /// Goes last: what is not in its place is removed before.
    _alone: File,
}

impl Resealed {
    /// Keys that the new passphrase opened already.
    #[must_use]
    pub fn done(&self) -> &[String] {
        &self.done
    }

    /// Keys that are sealed anew.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.next.iter().map(|(name, _)| name.as_str())
    }

    /// Puts them in their places. Broken off, another [`Keyring::reseal`] goes on.
    ///
    /// # Errors
    /// [`KeyringError::File`].
    pub fn put(self) -> Result<(), KeyringError> {
        for (_, written) in self.next {
            written.replace()?;
        }
        Ok(())
    }
}

impl Keyring {
    /// Seals the keys that a passphrase protects with another one. Nothing is written before all are open, and no key's file
    /// is another before all are on disk and the caller says so.
    ///
    /// # Errors
    /// [`KeyringError::PassphraseShort`]; [`KeyringError::Passphrase`] if a key opens with neither; [`KeyringError::Busy`] if
    /// another call is at it; [`KeyringError::File`].
    pub fn reseal(&self, former: &Passphrase, next: &Passphrase) -> Result<Resealed, KeyringError> {
        if next.chars() < MIN_PASSPHRASE {
            return Err(KeyringError::PassphraseShort);
        }
        let alone = self.alone()?;
        let (mut done, mut sealed) = (Vec::new(), Vec::new());
        for info in self.list()? {
            if info.backend != Backend::File {
                continue;
            }
            if self.key(&info.name, |_| Ok(next.clone())).is_ok() {
                done.push(info.name);
                continue;
            }
            let key = self.key(&info.name, |_| Ok(former.clone()))?;
            let path = self.path(&info.name)?;
            let format = || KeyringError::Format(path.clone());
            let secret = seal::seal(next, &bound(&info), key.secret()).map_err(|_| format())?;
            let mut file = self.read(&path, &info.name)?;
            file.secret = Secret::Sealed(secret);
            let text = Zeroizing::new(serde_json::to_vec_pretty(&file).map_err(|_| format())?);
            sealed.push((info.name, path, text));
        }
        let mut next = Vec::new();
        for (name, path, text) in sealed {
            next.push((name, Written::new(&path, &text)?));
        }
        Ok(Resealed {
            done,
            next,
            _alone: alone,
        })
    }
}
