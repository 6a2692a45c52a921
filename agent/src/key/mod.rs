//! The agent's Ed25519 key: made on the node or in its HSM, never leaves it.
//!
//! `agent.key` (mode 0600, owned by the agent's user) is a PKCS#8 PEM file (RFC 8410, readable by `openssl pkey`), or
//! JSON that says where the key lives: sealed by a TPM 2.0, or in an HSM. `agent.pub` is one line: base64 of the 32-byte
//! public key. `agent.key.next` is the key of a rotation under way, `agent.key.lock` is held while a command or the agent
//! changes them.

mod attest;
mod error;
mod file;
mod generate;
mod lock;
mod migrate;
mod pkcs11;
mod private;
mod rotation;
mod secret;
mod signer;
mod stored;
mod tpm;

pub use attest::{attest, attestation_key};
pub use error::{KeyFileError, SigningError};
pub use file::{describe, load};
pub use generate::{Generated, generate, generate_in};
pub use migrate::migrate;
pub use pkcs11::{COMMAND as PKCS11_COMMAND, HsmOptions, helper as pkcs11_helper};
pub use rotation::{forget_next, is_kept, load_next, load_registered, others, prepare_next, promote};
pub use secret::NodeKey;
pub use signer::{Place, SharedSigner, Signer, Signing};
pub use stored::Store;
pub use tpm::TpmOptions;
