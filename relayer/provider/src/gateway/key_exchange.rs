//! X25519 (RFC 7748) by aws-lc, in half of ring's time: the largest part of a handshake (ADR 31).

use aws_lc_rs::agreement::{EphemeralPrivateKey, PublicKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::rand::SystemRandom;
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// The group, for a provider of rustls.
#[derive(Debug)]
pub(super) struct FastX25519;

impl SupportedKxGroup for FastX25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let own =
            EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(|_| GetRandomFailed)?;
        let public = own.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Started { own, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Started {
    own: EphemeralPrivateKey,
    public: PublicKey,
}

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, theirs: &[u8]) -> Result<SharedSecret, Error> {
        let refused = Error::from(PeerMisbehaved::InvalidKeyShare);
        // It reads other encodings as well, which TLS does not know.
        if theirs.len() != self.public.as_ref().len() {
            return Err(refused);
        }
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        agree_ephemeral(self.own, theirs, refused, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::kx_group;

    use super::*;

    #[test]
    fn both_sides_come_to_one_secret_whoever_works_it_out() {
        let (ours, rings) = (FastX25519.start().unwrap(), kx_group::X25519.start().unwrap());
        let (our_key, their_key) = (ours.pub_key().to_vec(), rings.pub_key().to_vec());
        assert_eq!(ours.group(), rings.group());
        assert_ne!(our_key, FastX25519.start().unwrap().pub_key());
        let (here, there) = (
            ours.complete(&their_key).unwrap(),
            rings.complete(&our_key).unwrap(),
        );
        assert_eq!(here.secret_bytes(), there.secret_bytes());
    }

    /// Zero is of low order: the secret would be known to everybody (RFC 7748, section 6.1).
    #[test]
    fn a_share_that_is_no_key_is_refused() {
        // X25519 in SubjectPublicKeyInfo (RFC 8410): what aws-lc reads as well.
        let wrapped = [&hex::decode("302a300506032b656e032100").unwrap()[..], &[9; 32]].concat();
        for share in [
            vec![],
            vec![9; 31],
            vec![9; 33],
            vec![4; 65],
            vec![0; 32],
            wrapped,
        ] {
            let refused = FastX25519.start().unwrap().complete(&share);
            assert_eq!(
                refused.err(),
                Some(Error::from(PeerMisbehaved::InvalidKeyShare)),
                "{share:?}"
            );
        }
    }
}
