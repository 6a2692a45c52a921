//! A fleet of nodes that exist as keys only: registrations for benches, the same ones at every run.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use hpc_chain::keys::LocalKey;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registration::{NodeIdentity, key_rotation_message};
use hpc_schema::registry::{ExecuteMsg, RelayView};
use hpc_schema::report::Tag;
use hpc_schema::time::Rfc3339;
use sha2::{Digest as _, Sha256};

use super::sender::PREFIX;

/// The nodes of one cluster.
#[derive(Debug)]
pub struct Fleet {
    /// The cluster that all of them belong to.
    pub cluster: ClusterId,
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) key: SigningKey,
    pub(super) place: Option<Place>,
    pub(super) sequence: u32,
}

/// Where the contract put a node, and what its reports are bound to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) page: u16,
    pub(super) slot: u8,
    pub(super) epoch: u64,
    pub(super) tag: Tag,
}

/// Which chain and contract.
#[derive(Debug, Clone, Copy)]
pub struct Domain<'a> {
    /// The chain's id.
    pub chain_id: &'a str,
    /// The contract's address.
    pub contract: &'a str,
}

impl Fleet {
    /// `count` nodes of `cluster`, with keys that depend on nothing but cluster and number. A cluster's name of 64
    /// characters gives ids of 64.
    ///
    /// # Errors
    /// If the name is no cluster id.
    pub fn new(cluster: &str, count: usize) -> Result<Self> {
        let nodes = (0..count).map(|number| {
            let seed: [u8; 32] = Sha256::digest(format!("bench {cluster} {number}")).into();
            let id: String = format!("node-{number:05}-{cluster}").chars().take(64).collect();
            Ok(Node {
                id: id.parse()?,
                key: SigningKey::from(seed),
                place: None,
                sequence: 0,
            })
        });
        Ok(Self {
            cluster: cluster.parse()?,
            nodes: nodes.collect::<Result<_>>()?,
        })
    }

    /// Ids of all nodes.
    #[must_use]
    pub fn ids(&self) -> Vec<NodeId> {
        self.nodes.iter().map(|n| n.id.clone()).collect()
    }

    /// Sequence of the node's last report; none if it is not of this fleet.
    #[must_use]
    pub fn sequence(&self, node: &NodeId) -> Option<u32> {
        self.nodes.iter().find(|n| n.id == *node).map(|n| n.sequence)
    }

    /// The registration of every node, in their order, vouched for by `provider`.
    ///
    /// # Errors
    /// If the time is out of range, or the provider's key does not sign.
    pub fn registrations(
        &self,
        domain: Domain<'_>,
        provider: &LocalKey,
        now: u64,
    ) -> Result<Vec<ExecuteMsg>> {
        let owner = provider.address(PREFIX)?;
        self.nodes
            .iter()
            .map(|node| {
                let identity = NodeIdentity {
                    node_id: node.id.clone(),
                    cluster_id: self.cluster.clone(),
                    provider_address: owner.clone(),
                    agent_pubkey: public(&node.key)?,
                    hostname: Some(format!("{}.hpc.example.com", node.id)),
                    hardware_fingerprint: Some(hex(&Sha256::digest(node.id.as_str()))),
                    registration_nonce: STANDARD.encode(Sha256::digest(format!("nonce {} {now}", node.id))),
                    registration_timestamp: Rfc3339::from_unix(now, 0)?,
                };
                vouched(domain, provider, identity, None)
            })
            .collect()
    }

    /// The dearest registration there is: another key for node `number`, with the longest host name, another machine,
    /// and the present key's consent.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn rotation(
        &mut self,
        number: usize,
        domain: Domain<'_>,
        provider: &LocalKey,
        now: u64,
    ) -> Result<ExecuteMsg> {
        let node = self.nodes.get_mut(number).context("no such node")?;
        let next = SigningKey::from(<[u8; 32]>::from(Sha256::digest(node.id.as_str())));
        let nonce: [u8; 32] = Sha256::digest(format!("rotation {}", node.id)).into();
        let identity = NodeIdentity {
            node_id: node.id.clone(),
            cluster_id: self.cluster.clone(),
            provider_address: provider.address(PREFIX)?,
            agent_pubkey: public(&next)?,
            hostname: Some("h".repeat(253)),
            hardware_fingerprint: Some(hex(&Sha256::digest(nonce))),
            registration_nonce: STANDARD.encode(nonce),
            registration_timestamp: Rfc3339::from_unix(now, 0)?,
        };
        let consent = key_rotation_message(
            domain.chain_id,
            domain.contract,
            &self.cluster,
            &node.id,
            &identity.agent_pubkey,
            &nonce,
        );
        let consent = STANDARD.encode(<[u8; 64]>::from(node.key.sign(&consent)));
        node.key = next;
        vouched(domain, provider, identity, Some(consent))
    }

    /// Takes over where the contract put the nodes.
    ///
    /// # Errors
    /// If it does not know one of them.
    pub fn place(&mut self, domain: Domain<'_>, views: &[RelayView]) -> Result<()> {
        let views: BTreeMap<_, _> = views.iter().map(|v| (&v.node_id, v)).collect();
        self.put(domain, |_, id| {
            let view = views.get(id)?;
            Some((view.page, view.slot, view.epoch, view.sequence))
        })
    }

    /// Gives every node page, slot, epoch and last sequence.
    pub(super) fn put(
        &mut self,
        domain: Domain<'_>,
        position: impl Fn(usize, &NodeId) -> Option<(u16, u8, u64, u32)>,
    ) -> Result<()> {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let position = position(number, &node.id);
            let (page, slot, epoch, sequence) =
                position.with_context(|| format!("the contract does not know {}", node.id))?;
            let tag = Tag::derive(domain.chain_id, domain.contract, &self.cluster, &node.id, epoch);
            node.place = Some(Place {
                page,
                slot,
                epoch,
                tag,
            });
            node.sequence = sequence;
        }
        // Batches want rising page and slot.
        self.nodes.sort_by_key(|n| n.place.map(|p| (p.page, p.slot)));
        Ok(())
    }
}

fn vouched(
    domain: Domain<'_>,
    provider: &LocalKey,
    identity: NodeIdentity,
    rotation_signature: Option<String>,
) -> Result<ExecuteMsg> {
    let signature = provider.sign_registration(PREFIX, domain.chain_id, domain.contract, &identity)?;
    Ok(ExecuteMsg::RegisterNode {
        node_identity: identity,
        provider_signature: STANDARD.encode(signature),
        provider_pubkey: STANDARD.encode(provider.public_key()),
        rotation_signature,
    })
}

/// The public half.
///
/// # Errors
/// Never for a key that was made from a seed.
pub fn public(key: &SigningKey) -> Result<AgentKey> {
    Ok(AgentKey::from_bytes(VerificationKeyBytes::from(key).into())?)
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_the_same_at_every_run_and_no_two_nodes_are_alike() {
        let domain = Domain {
            chain_id: "chain",
            contract: "wasm1x",
        };
        let provider = LocalKey::from_secret(&[7; 32]).unwrap();
        let registrations = |fleet: &Fleet| fleet.registrations(domain, &provider, 5).unwrap();
        let (a, b) = (
            Fleet::new("bench-a", 3).unwrap(),
            Fleet::new("bench-a", 3).unwrap(),
        );
        assert_eq!(registrations(&a), registrations(&b));
        let keys: Vec<_> = a.nodes.iter().map(|n| public(&n.key).unwrap()).collect();
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    }

    #[test]
    fn a_long_name_gives_ids_of_the_greatest_length() {
        let fleet = Fleet::new(&"c".repeat(64), 2).unwrap();
        assert!(fleet.ids().iter().all(|id| id.as_str().len() == 64));
    }
}
