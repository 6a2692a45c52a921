//! The domain tag that binds a report to one registration on one contract.

use std::fmt;

use sha2::{Digest, Sha256};

use super::bytes::lp;
use crate::id::{ClusterId, NodeId};

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

const DOMAIN: &[u8] = b"hpc-report-v1";

/// First 16 bytes of SHA-256(`hpc-report-v1` ‖ lp(chain id) ‖ lp(contract) ‖ lp(cluster id) ‖ lp(node id) ‖ epoch u64),
/// lp = u16 length and bytes. Signed before every report, stored beside the key, never transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag([u8; TAG_LEN]);

impl Tag {
    /// The tag of one registration.
    #[must_use]
    pub fn derive(chain_id: &str, contract: &str, cluster: &ClusterId, node: &NodeId, epoch: u64) -> Self {
        let mut input = Vec::with_capacity(256);
        input.extend_from_slice(DOMAIN);
        lp(&mut input, chain_id);
        lp(&mut input, contract);
        lp(&mut input, cluster.as_str());
        lp(&mut input, node.as_str());
        input.extend_from_slice(&epoch.to_be_bytes());
        let mut tag = [0; TAG_LEN];
        for (to, from) in tag.iter_mut().zip(Sha256::digest(&input)) {
            *to = from;
        }
        Self(tag)
    }

    /// A tag read back from storage.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TAG_LEN]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; TAG_LEN] {
        &self.0
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(chain: &str, contract: &str, cluster: &str, node: &str, epoch: u64) -> Tag {
        Tag::derive(
            chain,
            contract,
            &cluster.parse().unwrap(),
            &node.parse().unwrap(),
            epoch,
        )
    }

    #[test]
    fn every_part_changes_the_tag() {
        let base = tag("chain", "wasm1abc", "cluster", "node-1", 1);
        for other in [
            tag("chain2", "wasm1abc", "cluster", "node-1", 1),
            tag("chain", "wasm1abd", "cluster", "node-1", 1),
            tag("chain", "wasm1abc", "cluster2", "node-1", 1),
            tag("chain", "wasm1abc", "cluster", "node-2", 1),
            tag("chain", "wasm1abc", "cluster", "node-1", 2),
            // The length prefixes keep neighbours from sliding into each other.
            tag("chain", "wasm1ab", "ccluster", "node-1", 1),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_documented_preimage() {
        let mut preimage = b"hpc-report-v1".to_vec();
        for text in ["chain", "wasm1abc", "cluster", "node-1"] {
            preimage.extend_from_slice(&[0, text.len().try_into().unwrap()]);
            preimage.extend_from_slice(text.as_bytes());
        }
        preimage.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(
            tag("chain", "wasm1abc", "cluster", "node-1", 7).as_bytes()[..],
            Sha256::digest(&preimage)[..16]
        );
    }
}
