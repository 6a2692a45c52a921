use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::clock::{self, NoRandomness};

/// What every credential begins with, so that scanners for leaked secrets know it.
const PREFIX: &str = "vea";
/// Bytes of an id.
const ID: usize = 8;
/// Bytes of a secret.
const SECRET: usize = 32;
/// Longest text that is looked at.
const MAX_TEXT: usize = 128;

/// A new credential: `vea_<id, 16 hex>_<secret, 43 base64url>`. Shown once, never kept.
pub struct Secret {
    id: String,
    secret: Zeroizing<[u8; SECRET]>,
}

impl Secret {
    /// Draws one.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn draw() -> Result<Self, NoRandomness> {
        Ok(Self {
            id: hex::encode(clock::random::<ID>()?),
            secret: Zeroizing::new(clock::random()?),
        })
    }

    /// Its id, which is no secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(*self.secret).into()
    }

    /// What is handed out.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        Zeroizing::new(format!("{PREFIX}_{}_{}", self.id, *secret))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A credential as somebody shows it.
pub struct Presented {
    /// Which it claims to be.
    pub id: String,
    hash: [u8; 32],
}

impl Presented {
    /// From the text after `Bearer `; none if it has not the form of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let (id, secret) = text.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if id.len() != 2 * ID || !id.bytes().all(hex) {
            return None;
        }
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.decode(secret).ok()?);
        (secret.len() == SECRET).then(|| Self {
            id: id.to_owned(),
            hash: Sha256::digest(&*secret).into(),
        })
    }

    /// Whether it is the one whose hash is kept; takes the same time whatever the answer.
    #[must_use]
    pub fn is(&self, hash: &[u8; 32]) -> bool {
        bool::from(self.hash.ct_eq(hash))
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_known_by_its_text_alone_and_never_shown() {
        let secret = Secret::draw().unwrap();
        let text = secret.text();
        let presented = Presented::parse(&text).unwrap();
        assert_eq!(presented.id, secret.id());
        assert!(presented.is(&secret.hash()));
        assert!(!presented.is(&Secret::draw().unwrap().hash()));
        // Its last part may have the sign that parts them.
        let hidden = text.splitn(3, '_').last().unwrap_or_default();
        assert!(!format!("{secret:?}{presented:?}").contains(hidden));
        for bad in [
            "",
            "vea",
            "vea__",
            "vea_00_AA",
            &text[..text.len() - 1],
            &format!("{}A", *text),
            &text.to_uppercase(),
        ] {
            assert!(Presented::parse(bad).is_none(), "{bad}");
        }
    }
}
