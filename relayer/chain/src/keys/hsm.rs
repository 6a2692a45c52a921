//! A secp256k1 key in an HSM: ECDSA over the SHA-256 digest that is made here, low s, verified before it is used.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use hpc_hsm::{Curve, HsmError, Key, Options, Session};
use k256::ecdsa::signature::hazmat::PrehashVerifier as _;
use k256::ecdsa::{Signature, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::credential::CREDENTIALS_ENV;
use super::error::KeyError;
use super::file::{read_credential, read_private};
use super::signer::{Doing, Signer};

/// Longest PIN file that is read.
const MAX_PIN: u64 = 256;
/// What is signed to see that the key signs: by its first byte neither a transaction (protobuf) nor a text to be signed (JSON).
const READY: &[u8] = b"virtengine-hpc-key-check-v1";
/// What is not the HSM's library's to know.
const HIDDEN: &[&str] = &[super::PASSPHRASE_FILE_ENV];

/// Where in an HSM a key is, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(flatten)]
    pub(super) options: Options,
    /// `CKA_ID` of both halves, lower-case hex.
    pub(super) id: String,
}

impl Place {
    /// Of a key pair that the HSM makes now, or has under this id already; with its compressed public key.
    pub(super) fn take(
        options: &Options,
        existing: Option<&[u8]>,
        label: &str,
    ) -> Result<(Self, [u8; 33]), KeyError> {
        let pin = pin(options).map_err(HsmError::Key)?;
        let fresh: [u8; 16] = rand::random();
        let id = existing.unwrap_or(&fresh);
        let public = match existing {
            Some(id) => hpc_hsm::find(options, &pin, Curve::Secp256k1, id)?,
            None => hpc_hsm::make(options, &pin, Curve::Secp256k1, id, label)?,
        };
        let sound = VerifyingKey::from_sec1_bytes(&public).is_ok();
        let public = public.try_into().ok().filter(|_| sound);
        let place = Self {
            options: options.clone(),
            id: hex::encode(id),
        };
        Ok((
            place,
            public.ok_or_else(|| HsmError::Key("the HSM's public key is no sound secp256k1 key".into()))?,
        ))
    }

    /// Ready to sign as this key.
    pub(super) fn signer(self, public: [u8; 33]) -> Result<HsmKey, KeyError> {
        let key = VerifyingKey::from_sec1_bytes(&public).map_err(|_| KeyError::Secret)?;
        let in_hsm = Key {
            curve: Curve::Secp256k1,
            public: hex::encode(public),
            options: self.options,
            id: self.id,
        };
        let check = move |digest: &[u8], signature: &[u8]| good(&key, digest, signature);
        Ok(HsmKey {
            public,
            session: Session::new(in_hsm, Arc::new(check), HIDDEN),
        })
    }
}

/// The signature with low s, if it is one: HSMs give either of the two, chains take one.
fn good(key: &VerifyingKey, digest: &[u8], signature: &[u8]) -> Option<[u8; 64]> {
    let signature = Signature::from_slice(signature).ok()?;
    let signature = signature.normalize_s().unwrap_or(signature);
    key.verify_prehash(digest, &signature).ok()?;
    Some(signature.to_bytes().into())
}

/// A key in an HSM, to be used within a tokio runtime.
#[derive(Debug)]
pub(super) struct HsmKey {
    public: [u8; 33],
    session: Session,
}

impl Signer for HsmKey {
    fn public_key(&self) -> &[u8; 33] {
        &self.public
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Doing<'a, [u8; 64]> {
        Box::pin(async move { Ok(self.session.sign(&Sha256::digest(message)).await?) })
    }

    fn ready(&self) -> Doing<'_, ()> {
        // A session that opens is not yet a key that signs: usage, quota and authorisation are asked for at the signature.
        Box::pin(async { self.sign(READY).await.map(drop) })
    }
}

/// The side of the HSM: what a program does as [`hpc_hsm::COMMAND`].
///
/// # Errors
/// The HSM's, in its words.
pub fn helper(input: impl BufRead, output: impl Write) -> Result<(), String> {
    hpc_hsm::serve(input, output, pin)
}

fn pin(options: &Options) -> Result<Zeroizing<String>, String> {
    let bytes = match (&options.pin_file, &options.pin_credential) {
        (Some(path), None) => read_private(path, MAX_PIN).map_err(|e| e.to_string())?,
        (None, Some(name)) => credential(name)?,
        _ => {
            return Err(
                "the HSM's PIN comes from a file (--pin-file) or a systemd credential (--pin-credential), one of them"
                    .into(),
            );
        }
    };
    let bytes = Zeroizing::new(bytes);
    let text = std::str::from_utf8(&bytes).map_err(|_| "the HSM's PIN is no text".to_owned())?;
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn credential(name: &str) -> Result<Vec<u8>, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!("{name:?} is no name of a credential"));
    }
    let folder = std::env::var_os(CREDENTIALS_ENV).ok_or_else(|| {
        format!("there are no credentials; let systemd start this with LoadCredential={name}:/path")
    })?;
    let path = Path::new(&folder).join(name);
    read_credential(&path, MAX_PIN).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use k256::ecdsa::SigningKey;
    use k256::ecdsa::signature::hazmat::PrehashSigner as _;

    use super::*;

    #[test]
    fn a_signature_with_high_s_is_turned_over_and_a_wrong_one_is_none() {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        let digest = Sha256::digest(b"m");
        let low: Signature = key.sign_prehash(&digest).unwrap();
        let low = low.normalize_s().unwrap_or(low);
        let (r, s) = low.split_scalars();
        let high = Signature::from_scalars(r.to_bytes(), (-s).to_bytes()).unwrap();
        assert_ne!(high, low);
        let expected: [u8; 64] = low.to_bytes().into();
        for given in [low, high] {
            assert_eq!(
                good(key.verifying_key(), &digest, &given.to_bytes()),
                Some(expected)
            );
        }
        assert_eq!(
            good(key.verifying_key(), &Sha256::digest(b"n"), &low.to_bytes()),
            None
        );
        assert_eq!(good(key.verifying_key(), &digest, &expected[..63]), None);
    }

    #[test]
    fn a_pin_comes_from_one_place() {
        let options = |pin_file: Option<&str>, pin_credential: Option<&str>| Options {
            module: "/m".into(),
            token: "t".into(),
            pin_file: pin_file.map(Into::into),
            pin_credential: pin_credential.map(Into::into),
        };
        for (file, credential) in [(None, None), (Some("/f"), Some("c"))] {
            assert!(
                pin(&options(file, credential))
                    .unwrap_err()
                    .contains("--pin-file")
            );
        }
        assert!(pin(&options(None, Some("../x"))).unwrap_err().contains("no name"));
    }
}
