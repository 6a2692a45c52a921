//! What signs: a key in memory, or a device that may fail and takes its time.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use hpc_schema::key::AgentKey;
use serde::Serialize;

use super::SigningError;

/// A signature on its way; bounded in time by whoever makes it.
pub type Signing<'a> = Pin<Box<dyn Future<Output = Result<[u8; 64], SigningError>> + Send + 'a>>;

/// The agent's Ed25519 key, wherever it lives.
pub trait Signer: fmt::Debug + Send + Sync {
    /// The public half, as registered.
    fn public(&self) -> AgentKey;

    /// Where the private half lives.
    fn place(&self) -> Place;

    /// Ed25519 over `message`. Ends in bounded time, and nothing else waits for it meanwhile.
    fn sign<'a>(&'a self, message: &'a [u8]) -> Signing<'a>;
}

/// One signer, many users.
pub type SharedSigner = Arc<dyn Signer>;

/// Where a private key lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "store", rename_all = "snake_case")]
pub enum Place {
    /// In the key file itself.
    File,
    /// Sealed by a TPM 2.0, in memory while the agent runs.
    Tpm2 {
        /// How the TPM is reached.
        tcti: String,
        /// Handle of a persistent parent key.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// In an HSM.
    Pkcs11 {
        /// The vendor's library.
        module: PathBuf,
        /// Label of the token.
        token: String,
        /// `CKA_ID` in hex.
        id: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("in its file"),
            Self::Tpm2 { tcti, .. } => write!(f, "sealed by the TPM {tcti}"),
            Self::Pkcs11 { module, token, id } => {
                write!(f, "in the HSM {}, token {token:?}, id {id}", module.display())
            }
        }
    }
}
