//! A key that the service manager hands over at each start, and no file of the keyring holds.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::file::read_credential;
use super::keyring_error::KeyringError;
use super::local::LocalKey;
use super::mnemonic::{DEFAULT_PATH, Mnemonic};

/// Where systemd puts credentials.
pub(super) const CREDENTIALS_ENV: &str = "CREDENTIALS_DIRECTORY";
/// Twenty-four words are far shorter.
const MAX_BYTES: u64 = 4096;

/// The key that the credential of this name is.
pub(super) fn open(key: &str, credential: &str, folder: Option<OsString>) -> Result<LocalKey, KeyringError> {
    let missing = || KeyringError::Credential {
        key: key.to_owned(),
        credential: credential.chars().take(64).collect(),
    };
    // A name, and no way to somewhere else.
    let plain = Path::new(credential).file_name() == Some(OsStr::new(credential));
    let path = folder.map(|folder| PathBuf::from(folder).join(credential));
    let path = path.filter(|path| plain && path.exists()).ok_or_else(missing)?;
    let words = Zeroizing::new(read_credential(&path, MAX_BYTES)?);
    let words = std::str::from_utf8(&words).unwrap_or_default();
    Ok(LocalKey::from_mnemonic(&Mnemonic::parse(words)?, DEFAULT_PATH)?)
}
