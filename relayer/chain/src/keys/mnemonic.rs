//! BIP39 words.

use std::fmt;

use rand::RngCore as _;
use zeroize::Zeroizing;

use super::error::KeyError;

/// The path of Cosmos' coin type 118, account 0.
pub const DEFAULT_PATH: &str = "m/44'/118'/0'/0/0";

/// English BIP39 words with a valid checksum. Zeroed on drop, never shown by Debug.
#[derive(Clone, PartialEq, Eq)]
pub struct Mnemonic(bip39::Mnemonic);

impl Mnemonic {
    /// 24 words of fresh entropy of the operating system.
    ///
    /// # Errors
    /// [`KeyError::Mnemonic`]: never for 32 bytes.
    pub fn generate() -> Result<Self, KeyError> {
        let mut entropy = Zeroizing::new([0u8; 32]);
        rand::rng().fill_bytes(entropy.as_mut());
        bip39::Mnemonic::from_entropy(entropy.as_ref())
            .map(Self)
            .map_err(|_| KeyError::Mnemonic)
    }

    /// Reads 12 to 24 words, separated by any white space.
    ///
    /// # Errors
    /// [`KeyError::Mnemonic`] for unknown words, another number of words or a bad checksum.
    pub fn parse(words: &str) -> Result<Self, KeyError> {
        let normal = Zeroizing::new(
            words
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .to_lowercase(),
        );
        bip39::Mnemonic::parse_in(bip39::Language::English, normal.as_str())
            .map(Self)
            .map_err(|_| KeyError::Mnemonic)
    }

    /// The words, separated by spaces. Whoever has them has the key.
    #[must_use]
    pub fn words(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.to_string())
    }

    /// The BIP39 seed without passphrase.
    pub(super) fn seed(&self) -> Zeroizing<[u8; 64]> {
        Zeroizing::new(self.0.to_seed_normalized(""))
    }
}

impl fmt::Debug for Mnemonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mnemonic(redacted)")
    }
}
