//! A key that this process holds in memory.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::key::AgentKey;
use zeroize::Zeroizing;

use super::{Place, SharedSigner, Signer, Signing};

/// PKCS#8 v1 of an Ed25519 key up to the seed (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PEM_HEAD: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_TAIL: &str = "-----END PRIVATE KEY-----";

/// The agent's signing key. `Debug` shows the public half only.
#[derive(Clone)]
pub struct NodeKey {
    signing: SigningKey,
    public: AgentKey,
}

impl NodeKey {
    /// From the 32-byte seed; none for the (practically impossible) seed of a weak key.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Option<Self> {
        let signing = SigningKey::from(seed);
        let public: [u8; 32] = VerificationKey::from(&signing).into();
        Some(Self {
            signing,
            public: AgentKey::from_bytes(public).ok()?,
        })
    }

    /// The public half, as registered.
    #[must_use]
    pub fn public(&self) -> AgentKey {
        self.public
    }

    /// Ed25519 over `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.signing.sign(message).into()
    }

    /// For everything that signs.
    #[must_use]
    pub fn shared(self) -> SharedSigner {
        Arc::new(self)
    }

    /// The secret.
    pub(super) fn seed(&self) -> &[u8] {
        self.signing.as_ref()
    }

    /// PKCS#8 PEM.
    #[must_use]
    pub(super) fn to_pem(&self) -> Zeroizing<String> {
        let mut der = Zeroizing::new([0u8; 48]);
        for (to, from) in der
            .iter_mut()
            .zip(PKCS8_PREFIX.iter().chain(self.signing.as_ref()))
        {
            *to = *from;
        }
        let body = Zeroizing::new(STANDARD.encode(&der[..]));
        Zeroizing::new(format!("{PEM_HEAD}\n{}\n{PEM_TAIL}\n", body.as_str()))
    }

    /// From PKCS#8 PEM or base64 of the seed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let body: Zeroizing<String> = match text.strip_prefix(PEM_HEAD) {
            Some(rest) => Zeroizing::new(rest.strip_suffix(PEM_TAIL)?.split_whitespace().collect()),
            None => Zeroizing::new(text.to_owned()),
        };
        let bytes = Zeroizing::new(STANDARD.decode(body.as_bytes()).ok()?);
        let seed: &[u8] = bytes.strip_prefix(&PKCS8_PREFIX).unwrap_or(&bytes);
        let seed = Zeroizing::new(<[u8; 32]>::try_from(seed).ok()?);
        Self::from_seed(*seed)
    }
}

impl Signer for NodeKey {
    fn public(&self) -> AgentKey {
        self.public
    }

    fn place(&self) -> Place {
        Place::File
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Signing<'a> {
        Box::pin(std::future::ready(Ok(NodeKey::sign(self, message))))
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_is_read_back_and_a_bare_seed_is_accepted() {
        let key = NodeKey::from_seed([7; 32]).unwrap();
        assert_eq!(NodeKey::parse(&key.to_pem()).unwrap().public(), key.public());
        assert_eq!(
            NodeKey::parse(&STANDARD.encode([7u8; 32])).unwrap().public(),
            key.public()
        );
        for bad in ["", "-----BEGIN PRIVATE KEY-----", "AAAA", "zzzz zzzz"] {
            assert!(NodeKey::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn pem_is_what_openssl_writes() {
        // RFC 8410, section 10.3: the example key.
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
        let key = NodeKey::parse(pem).unwrap();
        assert_eq!(key.to_pem().as_str(), pem);
        assert_eq!(
            key.public().to_base64(),
            "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = NodeKey::from_seed([7; 32]).unwrap();
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.public().to_base64()));
        assert!(!shown.contains(&STANDARD.encode([7u8; 32])));
    }
}
