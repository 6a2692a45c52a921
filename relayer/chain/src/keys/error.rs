use hpc_hsm::HsmError;
use hpc_schema::registration::FieldError;

/// What is wrong with a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a valid mnemonic.
    #[error("not a BIP39 mnemonic: 12 to 24 English words with a valid checksum are needed")]
    Mnemonic,
    /// Not a derivation path.
    #[error("{0:?} is not an HD path, such as m/44'/118'/0'/0/0")]
    Path(String),
    /// Not a secp256k1 key.
    #[error("not a secp256k1 private key of 32 bytes")]
    Secret,
    /// Not an address prefix.
    #[error("{0:?} is not a bech32 prefix, such as wasm or cosmos")]
    Prefix(String),
    /// Signing failed.
    #[error("the key refused to sign")]
    Sign,
    /// Data that may not be signed.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The HSM that has the key.
    #[error(transparent)]
    Hsm(#[from] HsmError),
}
