//! A fleet of nodes that exist as keys only: registrations and reports for benches, the same ones at every run.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::node::HealthStatus;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::RelayView;
use hpc_schema::report::batch::{Outgoing, encode};
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use sha2::{Digest as _, Sha256};

/// The nodes of one cluster.
#[derive(Debug)]
pub struct Fleet {
    /// The cluster that all of them belong to.
    pub cluster: ClusterId,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    id: NodeId,
    key: SigningKey,
    place: Option<Place>,
    sequence: u32,
}

/// Where the contract put a node, and what its reports are bound to.
#[derive(Debug, Clone, Copy)]
struct Place {
    page: u16,
    slot: u8,
    tag: Tag,
}

/// Which chain and contract.
#[derive(Debug, Clone, Copy)]
pub struct Domain<'a> {
    /// The chain's id.
    pub chain_id: &'a str,
    /// The contract's address.
    pub contract: &'a str,
}

/// What of the reports' rarely changing part is new in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sections {
    /// Every report carries its section: the first round.
    All,
    /// None does: nothing changed.
    None,
    /// The first of so many per cent of the nodes carry one with new job ids. No round of `None` may follow: it speaks of
    /// the section of the first round.
    PerCent(usize),
}

impl Fleet {
    /// `count` nodes of `cluster`, with keys that depend on nothing but cluster and number.
    ///
    /// # Errors
    /// If the name is no cluster id.
    pub fn new(cluster: &str, count: usize) -> Result<Self> {
        let nodes = (0..count).map(|number| {
            let seed: [u8; 32] = Sha256::digest(format!("bench {cluster} {number}")).into();
            Ok(Node {
                id: format!("node-{cluster}-{number:05}").parse()?,
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

    /// The identity of every node, to be signed by the provider.
    ///
    /// # Errors
    /// If the time is out of range.
    pub fn identities(&self, provider: &str, now: u64) -> Result<Vec<NodeIdentity>> {
        let identity = |node: &Node| {
            let public: [u8; 32] = VerificationKeyBytes::from(&node.key).into();
            Ok(NodeIdentity {
                node_id: node.id.clone(),
                cluster_id: self.cluster.clone(),
                provider_address: provider.to_owned(),
                agent_pubkey: AgentKey::from_bytes(public)?,
                hostname: Some(format!("{}.hpc.example.com", node.id)),
                hardware_fingerprint: Some(hex(&Sha256::digest(node.id.as_str()))),
                registration_nonce: STANDARD.encode(Sha256::digest(format!("nonce {} {now}", node.id))),
                registration_timestamp: Rfc3339::from_unix(now, 0)?,
            })
        };
        self.nodes.iter().map(identity).collect()
    }

    /// Takes over where the contract put the nodes.
    ///
    /// # Errors
    /// If it does not know one of them.
    pub fn place(&mut self, domain: Domain<'_>, views: &[RelayView]) -> Result<()> {
        for node in &mut self.nodes {
            let view = views.iter().find(|v| v.node_id == node.id);
            let view = view.with_context(|| format!("the contract does not know {}", node.id))?;
            let tag = Tag::derive(
                domain.chain_id,
                domain.contract,
                &self.cluster,
                &node.id,
                view.epoch,
            );
            node.place = Some(Place {
                page: view.page,
                slot: view.slot,
                tag,
            });
            node.sequence = view.sequence;
        }
        // Batches want rising page and slot.
        self.nodes.sort_by_key(|n| n.place.map(|p| (p.page, p.slot)));
        Ok(())
    }

    /// One signed report of every node picked, as the base64 of a batch. Cores, memory, latency and sequence differ
    /// from every report before.
    ///
    /// # Errors
    /// If a node has no place yet.
    pub fn batch(&mut self, now: u64, sections: Sections, pick: impl Fn(usize) -> bool) -> Result<String> {
        let count = self.nodes.len();
        let mut signed = Vec::new();
        for (number, node) in self
            .nodes
            .iter_mut()
            .enumerate()
            .filter(|(number, _)| pick(*number))
        {
            node.sequence += 1;
            let place = node.place.context("the node is not registered")?;
            let fresh = match sections {
                Sections::All => true,
                Sections::None => false,
                Sections::PerCent(share) => number * 100 < count * share,
            };
            let section = section(node.sequence, sections != Sections::All && fresh).encode();
            let report = Report {
                time: u32::try_from(now)?,
                sequence: node.sequence,
                body: body(number, node.sequence)?,
                section_digest: section_digest(&section),
                payload_hash: Sha256::digest(format!("payload {} {}", node.id, node.sequence)).into(),
            };
            let signature: [u8; 64] = node.key.sign(&report.message(&place.tag)).into();
            signed.push((place, report, signature, fresh.then_some(section)));
        }
        let outgoing: Vec<Outgoing<'_>> = signed
            .iter()
            .map(|(place, report, signature, section)| Outgoing {
                page: place.page,
                slot: place.slot,
                report,
                signature,
                section: section.as_deref(),
            })
            .collect();
        ensure!(!outgoing.is_empty(), "no node was picked");
        Ok(STANDARD.encode(encode(&outgoing)?))
    }
}

fn body(number: usize, sequence: u32) -> Result<Body> {
    let (number, round) = (u64::try_from(number)?, u64::from(sequence));
    let figures = Figures {
        running_count: 1,
        cores_available: (number + 7 * round) % 64,
        memory_gb_available: (3 * number + 11 * round) % 256,
        gpus_available: (number + round) % 5,
        storage_gb_available: 1_500,
        avg_cluster_latency_us: 40 + (number + 13 * round) % 900,
        measurement_count: 3,
    };
    Ok(Body::saturating(HealthStatus::Healthy, &figures))
}

fn section(sequence: u32, changed: bool) -> Section {
    Section {
        cores_total: 64,
        memory_gb_total: 256,
        gpus_total: 4,
        storage_gb_total: 2_000,
        agent_version: "0.1.0".into(),
        gpu_type: "NVIDIA A100 80GB".into(),
        jobs: if changed {
            vec![format!("slurm-{sequence}")]
        } else {
            vec!["slurm-1".into()]
        },
        jobs_total: 1,
        measurements: Vec::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_the_same_at_every_run_and_no_two_nodes_are_alike() {
        let (a, b) = (
            Fleet::new("bench-a", 3).unwrap(),
            Fleet::new("bench-a", 3).unwrap(),
        );
        assert_eq!(
            a.identities("wasm1x", 5).unwrap(),
            b.identities("wasm1x", 5).unwrap()
        );
        let keys: Vec<_> = a
            .identities("wasm1x", 5)
            .unwrap()
            .iter()
            .map(|i| i.agent_pubkey)
            .collect();
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    }

    #[test]
    fn every_round_changes_cores_memory_and_latency() {
        for number in 0..300 {
            let (a, b) = (body(number, 3).unwrap(), body(number, 4).unwrap());
            assert_ne!(a.cores_available, b.cores_available);
            assert_ne!(a.memory_gb_available, b.memory_gb_available);
            assert_ne!(a.avg_cluster_latency_us, b.avg_cluster_latency_us);
        }
    }
}
