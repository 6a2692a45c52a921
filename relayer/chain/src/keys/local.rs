//! A secp256k1 key in this process.

use std::fmt;

use cosmrs::crypto::PublicKey;
use cosmrs::crypto::secp256k1::SigningKey;
use hpc_schema::registration::{NodeIdentity, adr036_sign_bytes, canonical_registration};
use zeroize::Zeroizing;

use super::error::KeyError;
use super::mnemonic::Mnemonic;

/// A secp256k1 key held in memory; zeroed on drop, never shown by Debug.
pub struct LocalKey {
    signing: SigningKey,
    secret: Zeroizing<[u8; 32]>,
    public: [u8; 33],
}

impl LocalKey {
    /// Derives the key of `path` from the words.
    ///
    /// # Errors
    /// [`KeyError::Path`].
    pub fn from_mnemonic(mnemonic: &Mnemonic, path: &str) -> Result<Self, KeyError> {
        let bad = || KeyError::Path(path.chars().take(64).collect());
        let path: bip32::DerivationPath = path.parse().map_err(|_| bad())?;
        let seed = mnemonic.seed();
        let xprv = bip32::XPrv::derive_from_path(seed.as_slice(), &path).map_err(|_| bad())?;
        let secret = Zeroizing::new(<[u8; 32]>::from(xprv.private_key().to_bytes()));
        Self::from_secret(&secret)
    }

    /// From the 32 bytes of a private key, big endian.
    ///
    /// # Errors
    /// [`KeyError::Secret`] for 0 and for what is not below the group's order.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Self, KeyError> {
        let signing = SigningKey::from_slice(secret).map_err(|_| KeyError::Secret)?;
        let public = signing
            .public_key()
            .to_bytes()
            .try_into()
            .map_err(|_| KeyError::Secret)?;
        Ok(Self {
            signing,
            secret: Zeroizing::new(*secret),
            public,
        })
    }

    /// The compressed public key.
    #[must_use]
    pub fn public_key(&self) -> &[u8; 33] {
        &self.public
    }

    /// The account's address.
    ///
    /// # Errors
    /// [`KeyError::Prefix`].
    pub fn address(&self, prefix: &str) -> Result<String, KeyError> {
        address_of(self.signing.public_key(), prefix)
    }

    /// 64 bytes r‖s (low s) over SHA-256 of `message`.
    ///
    /// # Errors
    /// [`KeyError::Sign`].
    pub fn sign(&self, message: &[u8]) -> Result<[u8; 64], KeyError> {
        let signature = self.signing.sign(message).map_err(|_| KeyError::Sign)?;
        Ok(signature.to_bytes().into())
    }

    /// ADR-036 signature of `data` by this key's account.
    ///
    /// # Errors
    /// [`KeyError::Prefix`], [`KeyError::Sign`].
    pub fn sign_adr036(&self, prefix: &str, data: &[u8]) -> Result<[u8; 64], KeyError> {
        self.sign(&adr036_sign_bytes(&self.address(prefix)?, data))
    }

    /// The provider's signature of a node registration (protocol decision 2), valid for one contract on one chain.
    ///
    /// # Errors
    /// [`KeyError::Field`] names the field of the identity that may not be signed.
    pub fn sign_registration(
        &self,
        prefix: &str,
        chain_id: &str,
        contract: &str,
        identity: &NodeIdentity,
    ) -> Result<[u8; 64], KeyError> {
        let data = canonical_registration(chain_id, contract, identity)?;
        self.sign_adr036(prefix, data.as_bytes())
    }

    pub(super) fn secret(&self) -> &Zeroizing<[u8; 32]> {
        &self.secret
    }
}

/// The address of a compressed public key.
pub(super) fn address_of(key: PublicKey, prefix: &str) -> Result<String, KeyError> {
    let bad = || KeyError::Prefix(prefix.chars().take(32).collect());
    if prefix.is_empty()
        || !prefix
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    {
        return Err(bad());
    }
    Ok(key.account_id(prefix).map_err(|_| bad())?.to_string())
}

impl fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey")
            .field("public", &hex::encode(self.public))
            .finish_non_exhaustive()
    }
}
