//! The agent's Ed25519 key: made on the node, never leaves it.
//!
//! `agent.key` is a PKCS#8 PEM file (RFC 8410, readable by `openssl pkey`), mode 0600, owned by the agent's user.
//! `agent.pub` is one line: base64 of the 32-byte public key. `agent.key.next` is the key of a rotation under way.

mod error;
mod file;
mod generate;
mod rotation;
mod secret;
mod signer;

pub use error::{KeyFileError, SigningError};
pub use file::load;
pub use generate::{Generated, generate};
pub use rotation::{forget_next, load_next, load_registered, others, prepare_next, promote};
pub use secret::NodeKey;
pub use signer::{Place, SharedSigner, Signer, Signing};
