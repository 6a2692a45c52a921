//! secp256k1 keys of chain accounts: from a mnemonic, in a keyring directory, signing transactions and ADR-036 data.

mod backend;
mod file;
mod keyring;
mod local;
mod mnemonic;
mod seal;
mod stream;

pub use backend::Backend;
pub use file::{FileError, check_private_dir, read_private, write_private};
pub use keyring::{KeyInfo, Keyring, KeyringError, PASSPHRASE_FILE_ENV};
pub use local::{KeyError, LocalKey};
pub use mnemonic::{DEFAULT_PATH, Mnemonic};
pub use seal::Passphrase;
pub use stream::{OpenReader, SealWriter};

#[cfg(test)]
mod tests;
