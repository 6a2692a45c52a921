//! Agent keys and the verifier that all three judges share (protocol decision 9).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curve25519_dalek::edwards::CompressedEdwardsY;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bytes::base64_exact;

/// Checks Ed25519 signatures by the rules of ZIP-215, as the chain's host functions do.
///
/// The contract implements it over its host, everyone else over ed25519-zebra
/// (`ZebraVerifier`, feature `native-crypto`).
pub trait Verifier {
    /// Whether `signature` (64 bytes) over `message` is by `public_key` (32 bytes).
    fn verify(&self, message: &[u8], signature: &[u8], public_key: &[u8]) -> bool;
    /// Whether all are good; at most 256 triples, never zero.
    fn verify_batch(&self, messages: &[&[u8]], signatures: &[&[u8]], public_keys: &[&[u8]]) -> bool;
}

/// Why bytes are not an agent key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not base64 of exactly 32 bytes.
    #[error("an agent's key must be base64 of 32 bytes")]
    Encoding,
    /// A point of small order or a non-canonical encoding: under ZIP-215 such a key makes anybody a signer.
    #[error("the agent's key is a weak or non-canonical Ed25519 key; generate another")]
    Weak,
    /// No point of the curve: nothing could ever be signed for it, and in a batch it would spoil the common check.
    #[error("the agent's key is no point of Ed25519's curve; generate another")]
    NoPoint,
}

/// An Ed25519 public key, base64 in JSON: a point of the curve, of large order, in canonical encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct AgentKey(#[schemars(with = "String")] [u8; 32]);

/// y-coordinates of the points of small order, sign bit cleared, little endian, canonical form.
/// Source: the curve's 8-torsion; non-canonical aliases fall to the range check.
const SMALL_ORDER_Y: [[u8; 32]; 5] = [
    [0; 32],
    {
        let mut one = [0; 32];
        one[0] = 1;
        one
    },
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
];

impl AgentKey {
    /// Checks form, order and that the point is on the curve.
    ///
    /// # Errors
    /// [`KeyError::Weak`] for small-order and non-canonical encodings, [`KeyError::NoPoint`] off the curve.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let key = Self::encoded(bytes)?;
        match CompressedEdwardsY(bytes).decompress() {
            Some(_) => Ok(key),
            None => Err(KeyError::NoPoint),
        }
    }

    /// Form and order alone.
    fn encoded(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let mut y = bytes;
        if let Some(last) = y.last_mut() {
            *last &= 0x7f;
        }
        if SMALL_ORDER_Y.contains(&y) || !below_p(&y) {
            return Err(KeyError::Weak);
        }
        Ok(Self(bytes))
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Base64, as in `agent.pub` and in JSON.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

/// A key as the contract has it on record, or a gateway tells it from there: that it is a point was checked when it was
/// registered. Working that out again costs as much as all else of an answer with a hundred nodes; nothing is signed for a key
/// that is none.
pub(crate) fn on_record<'de, D: Deserializer<'de>>(de: D) -> Result<AgentKey, D::Error> {
    let text = String::deserialize(de)?;
    let bytes = base64_exact(&text).ok_or(KeyError::Encoding);
    bytes.and_then(AgentKey::encoded).map_err(D::Error::custom)
}

/// y < p = 2²⁵⁵ − 19, little endian.
fn below_p(y: &[u8; 32]) -> bool {
    let Some(((low, rest), top)) = y
        .split_first()
        .and_then(|(l, r)| r.split_last().map(|(t, r)| ((l, r), t)))
    else {
        return false;
    };
    !(*top == 0x7f && rest.iter().all(|b| *b == 0xff) && *low >= 0xed)
}

impl TryFrom<String> for AgentKey {
    type Error = KeyError;
    fn try_from(s: String) -> Result<Self, KeyError> {
        s.parse()
    }
}

impl std::str::FromStr for AgentKey {
    type Err = KeyError;
    fn from_str(s: &str) -> Result<Self, KeyError> {
        let bytes = STANDARD.decode(s.trim()).map_err(|_| KeyError::Encoding)?;
        Self::from_bytes(bytes.try_into().map_err(|_| KeyError::Encoding)?)
    }
}

impl From<AgentKey> for String {
    fn from(k: AgentKey) -> String {
        k.to_base64()
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

/// [`Verifier`] over ed25519-zebra.
#[cfg(feature = "native-crypto")]
#[derive(Debug, Clone, Copy, Default)]
pub struct ZebraVerifier;

#[cfg(feature = "native-crypto")]
impl Verifier for ZebraVerifier {
    fn verify(&self, message: &[u8], signature: &[u8], public_key: &[u8]) -> bool {
        let (Ok(key), Ok(sig)) = (
            ed25519_zebra::VerificationKey::try_from(public_key),
            ed25519_zebra::Signature::try_from(signature),
        ) else {
            return false;
        };
        key.verify(&sig, message).is_ok()
    }

    fn verify_batch(&self, messages: &[&[u8]], signatures: &[&[u8]], public_keys: &[&[u8]]) -> bool {
        messages.len() == signatures.len()
            && messages.len() == public_keys.len()
            && messages
                .iter()
                .zip(signatures)
                .zip(public_keys)
                .all(|((message, signature), key)| self.verify(message, signature, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_keys_are_refused() {
        for y in SMALL_ORDER_Y {
            for sign in [0u8, 0x80] {
                let mut k = y;
                k[31] |= sign;
                assert_eq!(AgentKey::from_bytes(k), Err(KeyError::Weak));
            }
        }
        // p and p + 1 encode 0 and 1 non-canonically.
        for low in [0xed, 0xee, 0xff] {
            let mut k = [0xff; 32];
            k[0] = low;
            k[31] = 0x7f;
            assert_eq!(AgentKey::from_bytes(k), Err(KeyError::Weak));
        }
    }

    #[test]
    fn a_key_on_record_is_read_as_it_is_and_a_weak_one_is_none() {
        let read = |text: String| on_record(serde_json::Value::from(text)).map_err(|e| e.to_string());
        let key = AgentKey::from_bytes(
            ed25519_zebra::VerificationKeyBytes::from(&ed25519_zebra::SigningKey::from([7; 32])).into(),
        )
        .unwrap();
        assert_eq!(read(key.to_base64()), Ok(key));
        for weak in [[0; 32], [0xff; 32]] {
            assert_eq!(read(STANDARD.encode(weak)), Err(KeyError::Weak.to_string()));
        }
        for text in [String::new(), STANDARD.encode([7; 31]), key.to_base64() + "AAAA"] {
            assert_eq!(read(text), Err(KeyError::Encoding.to_string()));
        }
    }

    #[test]
    fn a_key_is_a_point_that_verifiers_know() {
        let mut seen = [false; 2];
        for n in 0..64u8 {
            let mut bytes = [n; 32];
            bytes[31] &= 0x7f;
            if bytes == [0; 32] || bytes[1..] == [0; 31] {
                continue;
            }
            let known = ed25519_zebra::VerificationKey::try_from(bytes).is_ok();
            let accepted = AgentKey::from_bytes(bytes);
            assert_eq!(accepted.is_ok(), known, "{bytes:?}");
            assert!(known || accepted == Err(KeyError::NoPoint));
            seen[usize::from(known)] = true;
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn a_generated_key_is_accepted() {
        let sk = ed25519_zebra::SigningKey::from([7u8; 32]);
        let vk: [u8; 32] = ed25519_zebra::VerificationKey::from(&sk).into();
        let key = AgentKey::from_bytes(vk).unwrap();
        assert_eq!(key.to_base64().parse::<AgentKey>().unwrap(), key);
    }
}
