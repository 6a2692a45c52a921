//! What signs for an account: a key in memory, or a device that may fail and takes its time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hpc_schema::registration::{NodeIdentity, adr036_sign_bytes, canonical_registration};

use super::error::KeyError;
use super::local::{LocalKey, address_of};

/// Something that a key does; bounded in time by whoever does it.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, KeyError>> + Send + 'a>>;

/// The secp256k1 key of an account, wherever it lives.
pub trait Signer: fmt::Debug + Send + Sync {
    /// The compressed public key.
    fn public_key(&self) -> &[u8; 33];

    /// 64 bytes r‖s (low s) over SHA-256 of `message`.
    fn sign<'a>(&'a self, message: &'a [u8]) -> Doing<'a, [u8; 64]>;

    /// Whether it signs now: a device makes a signature that is of no use to anybody.
    fn ready(&self) -> Doing<'_, ()>;
}

/// One key, many users.
pub type SharedSigner = Arc<dyn Signer>;

impl dyn Signer + '_ {
    /// The account's address.
    ///
    /// # Errors
    /// [`KeyError::Prefix`].
    pub fn address(&self, prefix: &str) -> Result<String, KeyError> {
        let key = cosmrs::tendermint::PublicKey::from_raw_secp256k1(self.public_key());
        address_of(key.ok_or(KeyError::Secret)?.into(), prefix)
    }

    /// The provider's signature of a node registration (protocol decision 2), valid for one contract on one chain.
    ///
    /// # Errors
    /// [`KeyError::Field`] names the field of the identity that may not be signed; [`KeyError::Hsm`].
    pub async fn sign_registration(
        &self,
        prefix: &str,
        chain_id: &str,
        contract: &str,
        identity: &NodeIdentity,
    ) -> Result<[u8; 64], KeyError> {
        let data = canonical_registration(chain_id, contract, identity)?;
        self.sign(&adr036_sign_bytes(&self.address(prefix)?, data.as_bytes()))
            .await
    }
}

impl<T: Signer + ?Sized> Signer for Arc<T> {
    fn public_key(&self) -> &[u8; 33] {
        (**self).public_key()
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Doing<'a, [u8; 64]> {
        (**self).sign(message)
    }

    fn ready(&self) -> Doing<'_, ()> {
        (**self).ready()
    }
}

impl Signer for LocalKey {
    fn public_key(&self) -> &[u8; 33] {
        LocalKey::public_key(self)
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Doing<'a, [u8; 64]> {
        Box::pin(std::future::ready(LocalKey::sign(self, message)))
    }

    fn ready(&self) -> Doing<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
