//! X25519: one secret per session, forgotten at once.

use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;

/// Our half of the exchange.
pub(super) struct Secret {
    private: EphemeralPrivateKey,
    public: [u8; 32],
}

impl Secret {
    /// A new one; none if the kernel gives no randomness.
    pub(super) fn generate() -> Option<Self> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { private, public })
    }

    /// What the other side gets to see.
    pub(super) fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// Hands the shared secret to `use_it`; none for a public key that gives the same secret to everybody.
    pub(super) fn agree<T>(self, theirs: &[u8; 32], use_it: impl FnOnce(&[u8]) -> T) -> Option<T> {
        agree_ephemeral(self.private, &UnparsedPublicKey::new(&X25519, theirs), use_it).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_get_the_same_secret_and_a_zero_key_gets_none() {
        let (a, b) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        let (pa, pb) = (*a.public(), *b.public());
        assert_eq!(a.agree(&pb, <[u8]>::to_vec), b.agree(&pa, <[u8]>::to_vec));
        assert_eq!(Secret::generate().unwrap().agree(&[0; 32], <[u8]>::to_vec), None);
    }
}
