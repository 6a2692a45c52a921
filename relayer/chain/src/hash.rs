//! A transaction's hash, computed here from its bytes and never taken from an endpoint's word.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a transaction's bytes; 64 upper-case hex digits as text, as every Cosmos tool prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TxHash([u8; 32]);

/// The text is not 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a transaction hash has 64 hex digits")]
pub struct TxHashError;

impl TxHash {
    /// The hash of `tx_bytes`.
    #[must_use]
    pub fn of(tx_bytes: &[u8]) -> Self {
        Self(Sha256::digest(tx_bytes).into())
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for TxHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for TxHash {
    type Err = TxHashError;
    fn from_str(s: &str) -> Result<Self, TxHashError> {
        let bytes = hex::decode(s.trim()).map_err(|_| TxHashError)?;
        Ok(Self(bytes.try_into().map_err(|_| TxHashError)?))
    }
}

impl TryFrom<String> for TxHash {
    type Error = TxHashError;
    fn try_from(s: String) -> Result<Self, TxHashError> {
        s.parse()
    }
}

impl From<TxHash> for String {
    fn from(h: TxHash) -> String {
        h.to_string()
    }
}

impl fmt::Display for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(self.0))
    }
}

impl fmt::Debug for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
