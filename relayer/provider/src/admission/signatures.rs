//! Verification of signatures together, which costs half of one after the other. ZIP-215 makes both ways agree on every
//! signature.

use std::cell::RefCell;

use ed25519_zebra::batch::{Item, Verifier as Together};
use ed25519_zebra::{Signature, VerificationKeyBytes};
use hpc_schema::key::Verifier;
use rand_core::{CryptoRng, RngCore};

/// Heartbeats of one batch: two signatures of one key each. More gain little and make the first wait longer.
pub const BATCH: usize = 96;
/// Up to so many signatures are as fast one by one.
const SINGLY: usize = 3;

/// Signatures of one heartbeat, their messages hashed already.
pub type Signatures = Vec<Item>;

/// Notes what a judge wants verified and says yes to all of it: the answer counts only once the notes have been verified.
#[derive(Debug, Default)]
pub struct Notes(RefCell<(Signatures, bool)>);

impl Notes {
    /// What was noted; none if something cannot even be a key or signature.
    #[must_use]
    pub fn into_signatures(self) -> Option<Signatures> {
        let (signatures, unreadable) = self.0.into_inner();
        (!unreadable).then_some(signatures)
    }
}

impl Verifier for Notes {
    fn verify(&self, message: &[u8], signature: &[u8], public_key: &[u8]) -> bool {
        let (signatures, unreadable) = &mut *self.0.borrow_mut();
        match (
            VerificationKeyBytes::try_from(public_key),
            Signature::try_from(signature),
        ) {
            (Ok(key), Ok(signature)) => signatures.push(Item::from((key, signature, message))),
            _ => *unreadable = true,
        }
        true
    }

    fn verify_batch(&self, messages: &[&[u8]], signatures: &[&[u8]], public_keys: &[&[u8]]) -> bool {
        let triples = messages.iter().zip(signatures).zip(public_keys);
        triples.fold(true, |all, ((m, s), k)| self.verify(m, s, k) && all)
    }
}

/// Whether each of these heartbeats is signed: all at once, and one by one only if that fails.
#[must_use]
pub fn verify(heartbeats: &[Signatures]) -> Vec<bool> {
    let count: usize = heartbeats.iter().map(Vec::len).sum();
    if count > SINGLY && together(heartbeats) {
        return vec![true; heartbeats.len()];
    }
    let one = |signatures: &Signatures| signatures.iter().all(|s| s.clone().verify_single().is_ok());
    heartbeats.iter().map(one).collect()
}

fn together(heartbeats: &[Signatures]) -> bool {
    let mut batch = Together::new();
    for signature in heartbeats.iter().flatten() {
        batch.queue(signature.clone());
    }
    batch.verify(Random(rand::rng())).is_ok()
}

/// The process's random generator under the traits of the signature library.
struct Random(rand::rngs::ThreadRng);

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        rand::RngCore::next_u32(&mut self.0)
    }

    fn next_u64(&mut self) -> u64 {
        rand::RngCore::next_u64(&mut self.0)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        rand::RngCore::fill_bytes(&mut self.0, dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

// rand's thread generator is one: ChaCha12, reseeded by the operating system.
impl CryptoRng for Random {}

#[cfg(test)]
pub(super) mod tests {
    use ed25519_zebra::SigningKey;
    use hpc_schema::heartbeat::verify_heartbeat;
    use proptest::prelude::*;

    use super::*;
    use crate::vectors::Vectors;

    pub(crate) fn signed(seed: u8, message: &[u8], spoilt: bool) -> Signatures {
        let key = SigningKey::from([seed; 32]);
        let public = VerificationKeyBytes::from(&key);
        let mut bytes: [u8; 64] = key.sign(message).into();
        bytes[7] ^= u8::from(spoilt);
        let notes = Notes::default();
        assert!(notes.verify(message, &bytes, public.as_ref()));
        assert!(notes.verify(message, &<[u8; 64]>::from(key.sign(message)), public.as_ref()));
        notes.into_signatures().unwrap()
    }

    proptest! {
        #[test]
        fn in_a_batch_each_heartbeat_is_judged_as_it_would_be_alone(
            heartbeats in prop::collection::vec((1u8..9, any::<[u8; 4]>(), prop::bool::weighted(0.1)), 0..40)
        ) {
            let signatures: Vec<_> = heartbeats.iter().map(|(seed, m, spoilt)| signed(*seed, m, *spoilt)).collect();
            let expected: Vec<_> = heartbeats.iter().map(|(_, _, spoilt)| !spoilt).collect();
            prop_assert_eq!(verify(&signatures), expected);
        }
    }

    #[test]
    fn bytes_that_can_be_no_key_or_signature_are_told() {
        let notes = Notes::default();
        assert!(notes.verify(b"m", &[0; 63], &[0; 32]));
        assert!(notes.into_signatures().is_none());
        assert!(Notes::default().into_signatures().is_some_and(|s| s.is_empty()));
    }

    #[test]
    fn every_accepted_vector_is_verified_by_the_gateway_over_its_raw_bytes_and_no_other_signature_is() {
        let (mut noted, mut expected) = (Vec::new(), Vec::new());
        for (case, request, against) in Vectors::read().readable() {
            // As the judge does it: everything else first, then all signatures in one batch.
            let notes = Notes::default();
            let rest = verify_heartbeat(&request, &against, &notes);
            let wrong = case["result"]["code"] == "signature_invalid";
            match case["result"]["code"].as_str() {
                Some(code) if !wrong => assert_eq!(rest.unwrap_err().code.as_str(), code, "{case}"),
                _ => {
                    noted.push(notes.into_signatures().unwrap());
                    expected.push(!wrong);
                }
            }
        }
        assert!(expected.iter().filter(|good| **good).count() >= 2 && expected.contains(&false));
        assert_eq!(verify(&noted), expected);
    }
}
