//! Another passphrase for a keyring.

use zeroize::Zeroizing;

use super::backend::Backend;
use super::file::write_private;
use super::keyring::{Keyring, KeyringError, MIN_PASSPHRASE, Secret, bound};
use super::seal::{self, Passphrase};

impl Keyring {
    /// Seals the keys that a passphrase protects with another one; the names of those that it did not protect yet. Nothing is
    /// written before all are open, and what was broken off is gone on with by the next call.
    ///
    /// # Errors
    /// [`KeyringError::PassphraseShort`]; [`KeyringError::Passphrase`] if a key opens with neither.
    pub fn reseal(&self, former: &Passphrase, next: &Passphrase) -> Result<Vec<String>, KeyringError> {
        if next.chars() < MIN_PASSPHRASE {
            return Err(KeyringError::PassphraseShort);
        }
        let mut sealed = Vec::new();
        for info in self.list()? {
            if info.backend != Backend::File || self.key(&info.name, |_| Ok(next.clone())).is_ok() {
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
        for (_, path, text) in &sealed {
            write_private(path, text, true)?;
        }
        Ok(sealed.into_iter().map(|(name, ..)| name).collect())
    }
}
