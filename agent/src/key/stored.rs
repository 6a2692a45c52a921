//! What a key file holds: the key, or where it lives. One rename of this file changes both, so that no crash leaves
//! them apart.

use std::sync::Arc;

use hpc_schema::key::AgentKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::pkcs11::{self, HsmKey, HsmOptions, HsmSigner};
use super::secret::fresh;
use super::tpm::{Sealed, TpmOptions, seal, unseal};
use super::{KeyFileError, NodeKey, Place, SharedSigner};

/// Where a new key is to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// In its file.
    File,
    /// In its file, sealed by a TPM 2.0.
    Tpm(TpmOptions),
    /// In an HSM.
    Pkcs11(HsmOptions),
}

impl Store {
    /// A fresh key there.
    pub(super) fn make(&self) -> Result<Stored, KeyFileError> {
        Ok(match self {
            Self::File => Stored::Plain(fresh()?),
            Self::Tpm(options) => Stored::Elsewhere(Elsewhere::Tpm2(seal(&fresh()?, options)?)),
            Self::Pkcs11(options) => Stored::Elsewhere(Elsewhere::Pkcs11(pkcs11::make(options)?)),
        })
    }
}

/// A key whose file says where it lives: JSON with `store` = `tpm2` or `pkcs11`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "store", rename_all = "snake_case")]
pub(super) enum Elsewhere {
    /// Sealed.
    Tpm2(Sealed),
    /// In an HSM.
    Pkcs11(HsmKey),
}

/// The content of a key file.
#[derive(Debug)]
pub(super) enum Stored {
    /// PKCS#8 PEM, or base64 of the seed.
    Plain(NodeKey),
    /// A description.
    Elsewhere(Elsewhere),
}

impl Stored {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text).ok().map(Self::Elsewhere)
        } else {
            NodeKey::parse(text).map(Self::Plain)
        }
    }

    pub(super) fn to_text(&self) -> Result<Zeroizing<String>, KeyFileError> {
        match self {
            Self::Plain(key) => Ok(key.to_pem()),
            Self::Elsewhere(e) => serde_json::to_string_pretty(e)
                .map(|text| Zeroizing::new(format!("{text}\n")))
                .map_err(|e| KeyFileError::Device(e.to_string())),
        }
    }

    /// The public half, without a look at any device.
    pub(super) fn public(&self) -> AgentKey {
        match self {
            Self::Plain(key) => key.public(),
            Self::Elsewhere(Elsewhere::Tpm2(sealed)) => sealed.public_key,
            Self::Elsewhere(Elsewhere::Pkcs11(key)) => key.public_key,
        }
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Self::Plain(_) => Place::File,
            Self::Elsewhere(Elsewhere::Tpm2(sealed)) => sealed.place(),
            Self::Elsewhere(Elsewhere::Pkcs11(key)) => key.place(),
        }
    }

    /// Where another key like this one would live.
    pub(super) fn store(&self) -> Store {
        match self {
            Self::Plain(_) => Store::File,
            Self::Elsewhere(Elsewhere::Tpm2(sealed)) => Store::Tpm(sealed.options.clone()),
            Self::Elsewhere(Elsewhere::Pkcs11(key)) => Store::Pkcs11(key.options.clone()),
        }
    }

    /// The signer. A sealed key is unsealed now; an HSM is asked when there is something to sign.
    pub(super) fn open(self) -> Result<SharedSigner, KeyFileError> {
        Ok(match self {
            Self::Plain(key) => key.shared(),
            Self::Elsewhere(Elsewhere::Tpm2(sealed)) => Arc::new(unseal(&sealed)?),
            Self::Elsewhere(Elsewhere::Pkcs11(key)) => Arc::new(HsmSigner::new(key)),
        })
    }

    /// The same key in another place; none if it cannot leave where it is, or cannot be brought there.
    pub(super) fn moved(self, to: &Store) -> Result<Option<Self>, KeyFileError> {
        let key = match self {
            Self::Plain(key) => key,
            Self::Elsewhere(Elsewhere::Tpm2(sealed)) => unseal(&sealed)?.into_key(),
            Self::Elsewhere(Elsewhere::Pkcs11(_)) => return Ok(None),
        };
        Ok(match to {
            Store::File => Some(Self::Plain(key)),
            Store::Tpm(options) => Some(Self::Elsewhere(Elsewhere::Tpm2(seal(&key, options)?))),
            // A key that was outside is no better for lying in an HSM as well.
            Store::Pkcs11(_) => None,
        })
    }
}
