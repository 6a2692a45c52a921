//! A secret under a passphrase: Argon2id, then XChaCha20-Poly1305.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::RngCore as _;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Names a file of mode 0600 with the keyring's passphrase.
pub const PASSPHRASE_FILE_ENV: &str = "VIRTENGINE_KEYRING_PASSPHRASE_FILE";
/// OWASP's second choice of Argon2id parameters, raised: 64 MiB, 3 passes, 1 lane.
pub(super) const MEMORY_KIB: u32 = 64 * 1024;
pub(super) const PASSES: u32 = 3;
/// What a file may ask for: more would be a way to exhaust memory.
pub(super) const MAX_MEMORY_KIB: u32 = 1024 * 1024;
pub(super) const MAX_PASSES: u32 = 16;

/// A passphrase; zeroed on drop, never shown by Debug.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// Takes the text; trailing line ends are cut off.
    #[must_use]
    pub fn new(text: String) -> Self {
        let text = Zeroizing::new(text);
        Self(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// Length in characters.
    #[must_use]
    pub fn chars(&self) -> usize {
        self.0.chars().count()
    }

    /// Whether both are the same.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(redacted)")
    }
}

/// A sealed secret as it stands in a key file; binary members in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sealed {
    kdf: String,
    memory_kib: u32,
    passes: u32,
    salt: String,
    cipher: String,
    nonce: String,
    ciphertext: String,
}

/// The secret could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenError {
    /// Wrong passphrase, or the file was changed.
    Passphrase,
    /// The file is not one of ours.
    Format,
}

/// Seals `secret`; `bound` (the key's name and public key) is authenticated with it.
pub(super) fn seal(passphrase: &Passphrase, bound: &[u8], secret: &[u8; 32]) -> Result<Sealed, OpenError> {
    let mut salt = [0u8; 16];
    let mut nonce = [0u8; 24];
    rand::rng().fill_bytes(&mut salt);
    rand::rng().fill_bytes(&mut nonce);
    let key = derive(passphrase, &salt, MEMORY_KIB, PASSES)?;
    let cipher = XChaCha20Poly1305::new(key.as_ref().into());
    let ciphertext = cipher
        .encrypt(
            &XNonce::from(nonce),
            Payload {
                msg: secret,
                aad: bound,
            },
        )
        .map_err(|_| OpenError::Format)?;
    Ok(Sealed {
        kdf: "argon2id".to_owned(),
        memory_kib: MEMORY_KIB,
        passes: PASSES,
        salt: STANDARD.encode(salt),
        cipher: "xchacha20poly1305".to_owned(),
        nonce: STANDARD.encode(nonce),
        ciphertext: STANDARD.encode(ciphertext),
    })
}

/// Opens what [`seal`] sealed.
pub(super) fn open(
    passphrase: &Passphrase,
    bound: &[u8],
    sealed: &Sealed,
) -> Result<Zeroizing<[u8; 32]>, OpenError> {
    let Sealed {
        kdf,
        memory_kib,
        passes,
        salt,
        cipher,
        nonce,
        ciphertext,
    } = sealed;
    if kdf != "argon2id" || cipher != "xchacha20poly1305" {
        return Err(OpenError::Format);
    }
    if *memory_kib > MAX_MEMORY_KIB || *passes > MAX_PASSES {
        return Err(OpenError::Format);
    }
    let bytes = |text: &str| STANDARD.decode(text).map_err(|_| OpenError::Format);
    let nonce: [u8; 24] = bytes(nonce)?.try_into().map_err(|_| OpenError::Format)?;
    let key = derive(passphrase, &bytes(salt)?, *memory_kib, *passes)?;
    let plain = XChaCha20Poly1305::new(key.as_ref().into())
        .decrypt(
            &XNonce::from(nonce),
            Payload {
                msg: &bytes(ciphertext)?,
                aad: bound,
            },
        )
        .map_err(|_| OpenError::Passphrase)?;
    let plain = Zeroizing::new(plain);
    Ok(Zeroizing::new(
        plain.as_slice().try_into().map_err(|_| OpenError::Format)?,
    ))
}

pub(super) fn derive(
    passphrase: &Passphrase,
    salt: &[u8],
    memory_kib: u32,
    passes: u32,
) -> Result<Zeroizing<[u8; 32]>, OpenError> {
    let params = Params::new(memory_kib, passes, 1, Some(32)).map_err(|_| OpenError::Format)?;
    let mut key = Zeroizing::new([0u8; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.0.as_bytes(), salt, key.as_mut())
        .map_err(|_| OpenError::Format)?;
    Ok(key)
}
