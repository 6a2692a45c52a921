use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which HSM, and where its PIN is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The vendor's PKCS#11 library.
    pub module: PathBuf,
    /// Label of the token in it.
    pub token: String,
    /// File with the PIN, 0600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_file: Option<PathBuf>,
    /// Name of a systemd credential (`LoadCredential=`) with the PIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_credential: Option<String>,
}

/// What a key signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Curve {
    /// Ed25519 over the message itself (`CKM_EDDSA`); public keys of 32 bytes.
    Ed25519,
    /// ECDSA over a digest of 32 bytes that the caller makes (`CKM_ECDSA`); compressed public keys of 33 bytes.
    Secp256k1,
}

/// A key pair in an HSM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its curve.
    pub curve: Curve,
    /// The public half, lower-case hex.
    pub public: String,
    /// Where it is.
    #[serde(flatten)]
    pub options: Options,
    /// `CKA_ID` of both halves, lower-case hex.
    pub id: String,
}
