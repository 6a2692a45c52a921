//! secp256k1 keys of chain accounts: from a mnemonic, in a keyring directory or an HSM, signing transactions and ADR-036 data.

mod alone;
mod backend;
mod credential;
mod error;
mod file;
mod hsm;
mod keyring;
mod keyring_credential;
mod keyring_error;
mod local;
mod mnemonic;
mod reseal;
mod seal;
mod signer;
mod stream;

pub use backend::Backend;
pub use error::KeyError;
pub use file::{FileError, check_private_dir, read_credential, read_private, write_private};
pub use hpc_hsm::{COMMAND as HSM_COMMAND, HsmError, Options as HsmOptions};
pub use hsm::helper as hsm_helper;
pub use keyring::{KeyInfo, Keyring};
pub use keyring_error::KeyringError;
pub use local::LocalKey;
pub use mnemonic::{DEFAULT_PATH, Mnemonic};
pub use reseal::Resealed;
pub use seal::{PASSPHRASE_FILE_ENV, Passphrase};
pub use signer::{Doing, SharedSigner, Signer};
pub use stream::{OpenReader, SealWriter};

#[cfg(test)]
mod tests;
