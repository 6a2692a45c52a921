//! Where passphrases come from: a file that an environment variable names, or the terminal. Never an argument.

use std::path::{Path, PathBuf};

use hpc_chain::keys::{
    KeyInfo, Keyring, KeyringError, LocalKey, PASSPHRASE_FILE_ENV, Passphrase, read_private,
};

use crate::error::Failure;

/// A passphrase is a line.
const MAX_FILE: u64 = 4096;

/// Opens a key for signing.
pub(crate) fn open(keyring: &Keyring, name: &str) -> Result<LocalKey, Failure> {
    Ok(keyring.key(name, existing)?)
}

/// The passphrase of a stored key.
fn existing(info: &KeyInfo) -> Result<Passphrase, KeyringError> {
    match file() {
        Some(path) => read(&path),
        None => ask(&format!("passphrase of key {}: ", info.name), &info.name),
    }
}

/// The passphrase for a new key; on a terminal it is asked for twice.
pub(super) fn new(name: &str) -> Result<Passphrase, KeyringError> {
    if let Some(path) = file() {
        return read(&path);
    }
    let first = ask(
        &format!("passphrase for new key {name} (at least 8 characters): "),
        name,
    )?;
    let second = ask("the same again: ", name)?;
    if first.matches(&second) {
        Ok(first)
    } else {
        Err(KeyringError::Passphrase(name.to_owned()))
    }
}

fn file() -> Option<PathBuf> {
    std::env::var_os(PASSPHRASE_FILE_ENV)
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
}

fn read(path: &Path) -> Result<Passphrase, KeyringError> {
    let bytes = read_private(path, MAX_FILE)?;
    let text = String::from_utf8(bytes).map_err(|_| KeyringError::Format(path.to_owned()))?;
    Ok(Passphrase::new(text))
}

/// Asks on the terminal, wherever standard input comes from.
fn ask(prompt: &str, name: &str) -> Result<Passphrase, KeyringError> {
    rpassword::prompt_password(prompt)
        .map(Passphrase::new)
        .map_err(|_| KeyringError::PassphraseNeeded(name.to_owned()))
}
