//! The nodes: keys, registrations, signed reports with figures that differ by node and round.

use anyhow::{Context, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::node::HealthStatus;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::{ExecuteMsg, RelayView};
use hpc_schema::report::batch::{Outgoing, encode};
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use hpc_tests::bench::sender::{PREFIX, Sender};
use sha2::{Digest as _, Sha256};

use crate::rules::{History, Said};

/// Types of GPU by node; the empty one has none.
const GPU_TYPES: [&str; 3] = ["", "NVIDIA A100 80GB", "NVIDIA H100 80GB"];
/// Rounds in which the tenth falls silent, one part each.
const SILENT_FROM: usize = 3;
/// Rounds in which half of it comes back.
const BACK_FROM: usize = 9;

/// The nodes of one cluster.
pub(crate) struct Fleet {
    pub(crate) cluster: ClusterId,
    pub(crate) active: bool,
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) history: History,
    number: usize,
    key: SigningKey,
    place: Option<(u16, u8, Tag)>,
}

impl Node {
    pub(crate) fn gpu_type(&self) -> &'static str {
        GPU_TYPES.get(self.number % 3).copied().unwrap_or_default()
    }

    /// How far its clock is behind, in seconds. Those that fall silent are behind by so much that they cross every
    /// threshold within the run, and not all at once.
    fn lag(&self, round: usize) -> u64 {
        let number = u64::try_from(self.number).unwrap_or(0);
        if self.falls_silent() && round < BACK_FROM {
            number * 37 % 118
        } else {
            number % 4
        }
    }

    /// One in ten.
    pub(crate) fn falls_silent(&self) -> bool {
        self.number % 10 == 3
    }

    /// Whether it reports in that round. One in 64 never does.
    pub(crate) fn reports(&self, round: usize) -> bool {
        let part = self.number / 10 % 4;
        let silent =
            self.falls_silent() && round >= SILENT_FROM + part && !(part < 2 && round >= BACK_FROM + part);
        self.number % 64 != 60 && !silent
    }

    fn says(&self, round: usize, now: u64) -> Result<Said> {
        let (number, at) = (u64::try_from(self.number)?, u64::try_from(round)?);
        let mix = number * 31 + at * 17;
        let status = match mix % 16 {
            0 => HealthStatus::Draining,
            1 => HealthStatus::Unhealthy,
            2 => HealthStatus::Offline,
            3..=5 => HealthStatus::Degraded,
            _ => HealthStatus::Healthy,
        };
        Ok(Said {
            time: now - self.lag(round),
            sequence: u32::try_from(round)?,
            status,
            jobs: mix % 3 != 0,
            cores: u32::try_from((number + 7 * at) % 65)?,
            memory_gb: u32::try_from((3 * number + 11 * at) % 257)?,
            gpus: u32::try_from(if number % 3 == 0 { 0 } else { (number + at) % 5 })?,
            storage_gb: u32::try_from((5 * number + at) % 2_001)?,
            latency_us: u32::try_from(40 + (number * 13 + 29 * at) % 3_000)?,
            measurements: u8::try_from((number + at) % 4)?,
        })
    }

    fn section(&self) -> Vec<u8> {
        Section {
            cores_total: 64,
            memory_gb_total: 256,
            gpus_total: if self.number.is_multiple_of(3) { 0 } else { 4 },
            storage_gb_total: 2_000,
            agent_version: "0.1.0".into(),
            gpu_type: self.gpu_type().to_owned(),
            jobs: Vec::new(),
            jobs_total: 1,
            measurements: Vec::new(),
        }
        .encode()
    }
}

impl Fleet {
    pub(crate) fn new(cluster: &str, count: usize) -> Result<Self> {
        let nodes = (0..count).map(|number| {
            let seed: [u8; 32] = Sha256::digest(format!("scale {cluster} {number}")).into();
            Ok(Node {
                id: format!("{cluster}-node-{number:04}").parse()?,
                history: History::default(),
                number,
                key: SigningKey::from(seed),
                place: None,
            })
        });
        Ok(Self {
            cluster: cluster.parse()?,
            active: true,
            nodes: nodes.collect::<Result<_>>()?,
        })
    }

    /// A registration of every node, signed by the cluster's owner.
    pub(crate) fn registrations(&self, owner: &Sender, contract: &str, now: u64) -> Result<Vec<ExecuteMsg>> {
        let register = |node: &Node| {
            let public: [u8; 32] = VerificationKeyBytes::from(&node.key).into();
            let identity = NodeIdentity {
                node_id: node.id.clone(),
                cluster_id: self.cluster.clone(),
                provider_address: owner.address.clone(),
                agent_pubkey: AgentKey::from_bytes(public)?,
                hostname: None,
                hardware_fingerprint: None,
                registration_nonce: STANDARD.encode(Sha256::digest(node.id.as_str())),
                registration_timestamp: Rfc3339::from_unix(now, 0)?,
            };
            let signature = owner
                .key
                .sign_registration(PREFIX, &owner.chain_id, contract, &identity)?;
            Ok(ExecuteMsg::RegisterNode {
                node_identity: identity,
                provider_signature: STANDARD.encode(signature),
                provider_pubkey: STANDARD.encode(owner.key.public_key()),
                rotation_signature: None,
            })
        };
        self.nodes.iter().map(register).collect()
    }

    /// Takes over where the contract put the nodes.
    pub(crate) fn place(&mut self, chain_id: &str, contract: &str, views: &[RelayView]) -> Result<()> {
        for node in &mut self.nodes {
            let view = views.iter().find(|v| v.node_id == node.id);
            let view = view.with_context(|| format!("the contract does not know {}", node.id))?;
            let tag = Tag::derive(chain_id, contract, &self.cluster, &node.id, view.epoch);
            node.place = Some((view.page, view.slot, tag));
        }
        self.nodes
            .sort_by_key(|n| n.place.as_ref().map(|(page, slot, _)| (*page, *slot)));
        Ok(())
    }

    /// The round's reports as the base64 of a batch, and what each says, by place in `nodes`.
    pub(crate) fn batch(&self, round: usize, now: u64) -> Result<(String, Vec<(usize, Said)>)> {
        let (mut signed, mut said) = (Vec::new(), Vec::new());
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, n)| n.reports(round)) {
            let (page, slot, tag) = node.place.as_ref().context("the node is not registered")?;
            let says = node.says(round, now)?;
            let section = node.section();
            let figures = Figures {
                running_count: u64::from(says.jobs),
                cores_available: says.cores.into(),
                memory_gb_available: says.memory_gb.into(),
                gpus_available: says.gpus.into(),
                storage_gb_available: says.storage_gb.into(),
                avg_cluster_latency_us: says.latency_us.into(),
                measurement_count: says.measurements.into(),
            };
            let report = Report {
                time: u32::try_from(says.time)?,
                sequence: says.sequence,
                body: Body::saturating(says.status, &figures),
                section_digest: section_digest(&section),
                payload_hash: Sha256::digest(format!("{} {round}", node.id)).into(),
            };
            let signature: [u8; 64] = node.key.sign(&report.message(tag)).into();
            signed.push((*page, *slot, report, signature, (round == 1).then_some(section)));
            said.push((at, says));
        }
        let outgoing: Vec<Outgoing<'_>> = signed
            .iter()
            .map(|(page, slot, report, signature, section)| Outgoing {
                page: *page,
                slot: *slot,
                report,
                signature,
                section: section.as_deref(),
            })
            .collect();
        let bytes = encode(&outgoing).map_err(|e| anyhow!("{e}"))?;
        Ok((STANDARD.encode(bytes), said))
    }
}
