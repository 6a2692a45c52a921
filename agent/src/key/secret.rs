//! A key that this process holds in memory.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::key::AgentKey;
use zeroize::Zeroizing;

use super::{KeyFileError, Place, SharedSigner, Signer, Signing};
use crate::random;

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

/// A key of the kernel's randomness.
pub(super) fn fresh() -> Result<NodeKey, KeyFileError> {
    loop {
        let seed = Zeroizing::new(random::bytes::<32>().map_err(KeyFileError::Random)?);
        // A seed whose public key is weak has probability 2⁻²⁴⁹; drawing again costs nothing.
        if let Some(key) = NodeKey::from_seed(*seed) {
            return Ok(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use hpc_schema::heartbeat::{Heartbeat, HeartbeatRequest, SignHeartbeat, UnsignedHeartbeat};
    use hpc_schema::key::{Verifier as _, ZebraVerifier};
    use hpc_schema::registry::JobIds;
    use hpc_schema::report::{Tag, section_digest};
    use serde_json::Value;

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
    fn every_accepted_vector_is_what_the_agent_signs_byte_for_byte_and_verifies_by_its_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/vectors/heartbeat.json");
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let text = |key: &str| file["context"][key].as_str().unwrap();
        let seed = hex::decode(file["context"]["agent"]["seed"].as_str().unwrap()).unwrap();
        let key = NodeKey::from_seed(seed.try_into().unwrap()).unwrap();
        assert_eq!(key.public().to_base64(), text("public_key"));
        let (cluster, node) = (
            text("cluster_id").parse().unwrap(),
            text("node_id").parse().unwrap(),
        );
        let epoch = file["context"]["epoch"].as_u64().unwrap();
        let tag = Tag::derive(text("chain_id"), text("contract"), &cluster, &node, epoch);
        let cases = file["cases"].as_array().unwrap().iter();
        let accepted: Vec<_> = cases.filter(|c| c["result"] == "accepted").collect();
        assert!(accepted.len() >= 2);
        for case in accepted {
            let body = case["body"].as_str().unwrap();
            let theirs = HeartbeatRequest::parse(body.as_bytes()).unwrap();
            let heartbeat = Heartbeat::parse(&theirs.heartbeat).unwrap();
            let nonce = STANDARD.decode(&theirs.auth.nonce).unwrap();
            let digest = hex::decode(case["derived"]["section"].as_str().unwrap()).unwrap();
            let settled = theirs.auth.section.is_none().then(|| section_digest(&digest));
            let what = SignHeartbeat {
                heartbeat: &heartbeat,
                nonce: nonce.try_into().unwrap(),
                tag: &tag,
                job_ids: JobIds::Plain,
                settled_section: settled,
            };
            let unsigned = UnsignedHeartbeat::new::<()>(&what).unwrap();
            let [payload, report] = unsigned.messages();
            for (message, signature) in [
                (payload, &theirs.auth.signature),
                (report, theirs.auth.report_signature.as_ref().unwrap()),
            ] {
                let signature = STANDARD.decode(signature).unwrap();
                assert!(ZebraVerifier.verify(message, &signature, key.public().as_bytes()));
            }
            let signatures = [key.sign(payload), key.sign(report)];
            let ours = unsigned.signed(signatures).request;
            assert_eq!(serde_json::to_string(&ours).unwrap(), body);
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
