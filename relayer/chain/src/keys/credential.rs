//! A key that the service manager hands over at each start, and no file of the keyring holds.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::file::{FileError, read_credential};
use super::keyring_error::KeyringError;
use super::local::LocalKey;
use super::mnemonic::{DEFAULT_PATH, Mnemonic};

/// Where systemd puts credentials.
pub(super) const CREDENTIALS_ENV: &str = "CREDENTIALS_DIRECTORY";
/// Twenty-four words are far shorter.
const MAX_BYTES: u64 = 4096;

/// The key that the credential of this name is.
pub(super) fn open(key: &str, credential: &str, folder: Option<OsString>) -> Result<LocalKey, KeyringError> {
    let (key, credential) = (key.to_owned(), credential.to_owned());
    // A name, and no way to somewhere else.
    if Path::new(&credential).file_name() != Some(OsStr::new(&credential)) {
        return Err(KeyringError::CredentialName(
            credential.chars().take(64).collect(),
        ));
    }
    let path = folder.map(|folder| PathBuf::from(folder).join(&credential));
    let bytes = match path.map(|path| read_credential(&path, MAX_BYTES)) {
        None => return Err(KeyringError::Credential { key, credential }),
        Some(Err(FileError::Io { source, .. })) if source.kind() == ErrorKind::NotFound => {
            return Err(KeyringError::Credential { key, credential });
        }
        Some(read) => Zeroizing::new(read?),
    };
    let words = std::str::from_utf8(&bytes).ok();
    match words.and_then(|words| Mnemonic::parse(words).ok()) {
        Some(mnemonic) => Ok(LocalKey::from_mnemonic(&mnemonic, DEFAULT_PATH)?),
        None => Err(KeyringError::CredentialWords { key, credential }),
    }
}
