//! Providers and agents with real keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cosmwasm_std::{Addr, Api, CanonicalAddr};
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_schema::key::AgentKey;
use hpc_schema::node::HealthStatus;
use hpc_schema::registration::{
    NodeIdentity, account_of, adr036_sign_bytes, canonical_registration, key_rotation_message,
};
use hpc_schema::registry::RegisterAnswer;
use hpc_schema::report::batch::{Outgoing, encode};
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use k256::ecdsa::signature::hazmat::PrehashSigner as _;
use sha2::{Digest, Sha256};

use super::{CHAIN_ID, Chain};

#[derive(Clone)]
pub struct Provider(k256::ecdsa::SigningKey);

impl Provider {
    pub fn new(seed: u8) -> Self {
        Self(k256::ecdsa::SigningKey::from_slice(&[seed; 32]).unwrap())
    }

    pub fn public_key(&self) -> [u8; 33] {
        self.0
            .verifying_key()
            .to_encoded_point(true)
            .as_bytes()
            .try_into()
            .unwrap()
    }

    pub fn address(&self, chain: &Chain) -> Addr {
        chain
            .deps
            .api
            .addr_humanize(&CanonicalAddr::from(account_of(&self.public_key())))
            .unwrap()
    }

    pub fn sign(&self, chain: &Chain, identity: &NodeIdentity) -> [u8; 64] {
        let contract = chain.env.contract.address.as_str();
        let chain_id = &chain.env.block.chain_id;
        let canonical = canonical_registration(chain_id, contract, identity).unwrap();
        let bytes = adr036_sign_bytes(self.address(chain).as_str(), canonical.as_bytes());
        let signature: k256::ecdsa::Signature = self.0.sign_prehash(&Sha256::digest(bytes)).unwrap();
        signature.normalize_s().unwrap_or(signature).to_bytes().into()
    }

    /// `register_node` for this identity.
    pub fn vouch(&self, chain: &Chain, identity: &NodeIdentity) -> serde_json::Value {
        serde_json::json!({"register_node": {
            "node_identity": identity,
            "provider_signature": STANDARD.encode(self.sign(chain, identity)),
            "provider_pubkey": STANDARD.encode(self.public_key()),
        }})
    }
}

/// A signed report, ready to be relayed.
#[derive(Clone)]
pub struct Signed {
    pub report: Report,
    pub signature: [u8; 64],
    pub section: Option<Vec<u8>>,
}

#[derive(Clone)]
pub struct Agent {
    pub cluster: String,
    pub id: String,
    pub key: SigningKey,
    pub page: u16,
    pub slot: u8,
    pub epoch: u64,
    pub sequence: u32,
    pub section: Section,
    /// Whether the next report carries the section.
    pub attach: bool,
    pub fingerprint: Option<String>,
}

pub fn key_of(seed: &str) -> SigningKey {
    SigningKey::from(<[u8; 32]>::from(Sha256::digest(seed)))
}

impl Agent {
    pub fn new(cluster: &str, id: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            id: id.to_owned(),
            key: key_of(&format!("{cluster}/{id}")),
            page: 0,
            slot: 0,
            epoch: 0,
            sequence: 0,
            section: Section {
                cores_total: 64,
                memory_gb_total: 256,
                gpus_total: 4,
                storage_gb_total: 2_000,
                agent_version: "0.1.0".to_owned(),
                gpu_type: "NVIDIA A100 80GB".to_owned(),
                ..Section::default()
            },
            attach: true,
            fingerprint: None,
        }
    }

    pub fn public_key(&self) -> AgentKey {
        AgentKey::from_bytes(VerificationKey::from(&self.key).into()).unwrap()
    }

    pub fn identity(&self, chain: &mut Chain) -> NodeIdentity {
        let nonce = chain.fresh_nonce();
        NodeIdentity {
            node_id: self.id.parse().unwrap(),
            cluster_id: self.cluster.parse().unwrap(),
            provider_address: chain.provider.address(chain).into_string(),
            agent_pubkey: self.public_key(),
            hostname: Some(format!("{}.example.org", self.id)),
            hardware_fingerprint: self.fingerprint.clone(),
            registration_nonce: STANDARD.encode(nonce),
            registration_timestamp: Rfc3339::from_unix(chain.now(), 0).unwrap(),
        }
    }

    pub fn registration(&self, chain: &mut Chain) -> serde_json::Value {
        let identity = self.identity(chain);
        chain.provider.clone().vouch(chain, &identity)
    }

    /// A registration under a new key, with the old one's consent.
    pub fn rotation(&mut self, chain: &mut Chain, new: SigningKey) -> serde_json::Value {
        let old = std::mem::replace(&mut self.key, new);
        let identity = self.identity(chain);
        let mut msg = chain.provider.clone().vouch(chain, &identity);
        let message = key_rotation_message(
            CHAIN_ID,
            chain.env.contract.address.as_str(),
            &identity.cluster_id,
            &identity.node_id,
            &identity.agent_pubkey,
            &identity.nonce().unwrap(),
        );
        let signature: [u8; 64] = old.sign(&message).into();
        msg["register_node"]["rotation_signature"] = STANDARD.encode(signature).into();
        msg
    }

    pub fn placed(&mut self, answer: &RegisterAnswer) {
        self.page = answer.page;
        self.slot = answer.slot;
        self.epoch = answer.epoch;
        self.sequence = 0;
    }

    pub fn tag(&self, chain_id: &str, contract: &str) -> Tag {
        Tag::derive(
            chain_id,
            contract,
            &self.cluster.parse().unwrap(),
            &self.id.parse().unwrap(),
            self.epoch,
        )
    }

    pub fn contract() -> String {
        cosmwasm_std::testing::MockApi::default()
            .with_prefix("wasm")
            .addr_make("contract")
            .into_string()
    }

    pub fn sign(&self, report: Report) -> [u8; 64] {
        self.key
            .sign(&report.message(&self.tag(CHAIN_ID, &Self::contract())))
            .into()
    }

    pub fn report(&mut self, time: u64, status: HealthStatus, running_count: u64) -> Signed {
        self.sequence += 1;
        let n = u64::from(self.sequence);
        let figures = Figures {
            running_count,
            cores_available: 16 + n % 32,
            memory_gb_available: 64 + n % 64,
            gpus_available: 2,
            storage_gb_available: 1_500,
            avg_cluster_latency_us: 40 + n % 16,
            measurement_count: 3,
        };
        self.with_figures(time, status, &figures)
    }

    /// A report with the present sequence.
    pub fn with_figures(&mut self, time: u64, status: HealthStatus, figures: &Figures) -> Signed {
        let section = self.section.encode();
        let report = Report {
            time: time.try_into().unwrap(),
            sequence: self.sequence,
            body: Body::saturating(status, figures),
            section_digest: section_digest(&section),
            payload_hash: Sha256::digest(format!("{}/{}", self.id, self.sequence)).into(),
        };
        let section = std::mem::take(&mut self.attach).then_some(section);
        Signed {
            report,
            signature: self.sign(report),
            section,
        }
    }

    pub fn healthy(&mut self, time: u64) -> Signed {
        self.report(time, HealthStatus::Healthy, 0)
    }
}

/// Batch bytes of each cluster, base64, in order of cluster and place; items are numbered in the order given if that
/// order is by cluster, page and slot.
pub fn groups(mut reports: Vec<(&Agent, Signed)>) -> Vec<(String, Vec<u8>)> {
    reports.sort_by_key(|(a, _)| (a.cluster.clone(), a.page, a.slot));
    reports
        .chunk_by(|a, b| a.0.cluster == b.0.cluster)
        .map(|group| {
            let outgoing: Vec<_> = group
                .iter()
                .map(|(agent, signed)| Outgoing {
                    page: agent.page,
                    slot: agent.slot,
                    report: &signed.report,
                    signature: &signed.signature,
                    section: signed.section.as_deref(),
                })
                .collect();
            (group[0].0.cluster.clone(), encode(&outgoing).unwrap())
        })
        .collect()
}

pub fn submit_msg(groups: &[(String, Vec<u8>)]) -> serde_json::Value {
    let groups: Vec<_> = groups
        .iter()
        .map(|(cluster, bytes)| serde_json::json!({"cluster_id": cluster, "reports": STANDARD.encode(bytes)}))
        .collect();
    serde_json::json!({"submit_reports": {"groups": groups}})
}

pub fn batch(reports: Vec<(&Agent, Signed)>) -> serde_json::Value {
    submit_msg(&groups(reports))
}
