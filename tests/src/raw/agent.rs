//! The agent: drafts of heartbeats, signed and sent.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::SigningKey;
use hpc_schema::gateway::certificate_uri;
use hpc_schema::heartbeat::auth_message;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::HealthStatus;
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Answer, Gateway, now};

/// A registered node without an agent: the test is the agent.
#[derive(Debug, Clone)]
pub struct RawAgent {
    pub(super) gateway: Gateway,
    /// The key it registered.
    pub key: SigningKey,
    /// Its place, as the certificate names it.
    pub node: NodeId,
    pub(super) cluster: ClusterId,
    pub(super) tag: Tag,
    pub(super) certificate: PathBuf,
    pub(super) tls_key: PathBuf,
}

/// One heartbeat before it is signed. Change a field to make it wrong.
#[derive(Debug, Clone)]
pub struct Draft {
    /// `sequence_number`, in payload and report.
    pub sequence: u64,
    /// `timestamp`, whole seconds.
    pub time: u64,
    /// `auth.nonce`.
    pub nonce: [u8; 16],
    /// Signs payload and report.
    pub key: SigningKey,
    /// The node in path and payload.
    pub node: NodeId,
    /// `capacity.cpu_cores_available`, of 64.
    pub cores_available: u32,
    /// Bytes of padding in the payload.
    pub padding: usize,
    /// Flips a bit of the payload's signature.
    pub break_signature: bool,
    /// Flips a bit of the report's signature.
    pub break_report_signature: bool,
}

impl RawAgent {
    /// A heartbeat that is right in every field.
    ///
    /// # Errors
    /// If the clock stands before 1970.
    pub fn draft(&self, sequence: u64) -> Result<Draft> {
        Ok(Draft {
            sequence,
            time: now()?,
            nonce: rand::random(),
            key: self.key,
            node: self.node.clone(),
            cores_available: 2,
            padding: 0,
            break_signature: false,
            break_report_signature: false,
        })
    }

    /// Signs a draft and sends it over this agent's certificate.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub fn send(&self, draft: &Draft) -> Result<Answer> {
        let path = format!("/api/v1/hpc/nodes/{}/heartbeat", draft.node);
        self.gateway.post(
            &path,
            &self.sign(draft)?,
            Some((&self.certificate, &self.tls_key)),
        )
    }

    /// The same agent with a certificate for `node`, made with the site's own CA key: right in every respect, of a node
    /// that is not on record.
    ///
    /// # Errors
    /// If the CA's files cannot be read.
    pub fn certified_as(&self, node: &str) -> Result<Self> {
        let ca = fs::read_to_string(&self.gateway.ca)?;
        let key = fs::read_to_string(self.gateway.ca.with_file_name("ca.key"))?;
        let issuer = Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&key)?)?;
        let node: NodeId = node.parse()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, node.as_str());
        let uri = certificate_uri(&self.cluster, &node);
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let tls = KeyPair::generate()?;
        let certificate = self.certificate.with_file_name(format!("{node}.crt"));
        let tls_key = self.tls_key.with_file_name(format!("{node}.key"));
        fs::write(&certificate, params.signed_by(&tls, &issuer)?.pem())?;
        fs::write(&tls_key, tls.serialize_pem())?;
        Ok(Self {
            node,
            certificate,
            tls_key,
            ..self.clone()
        })
    }

    fn sign(&self, draft: &Draft) -> Result<Value> {
        let mut payload = json!({
            "node_id": draft.node,
            "cluster_id": self.cluster,
            "sequence_number": draft.sequence,
            "timestamp": Rfc3339::from_unix(draft.time, 0)?,
            "agent_version": "0.1.0",
            "capacity": {
                "cpu_cores_total": 64,
                "cpu_cores_available": draft.cores_available,
                "memory_gb_total": 8,
                "memory_gb_available": 4,
            },
            "health": {
                "status": "healthy",
                "uptime_seconds": 1000,
                "cpu_utilization_percent": 5,
                "memory_utilization_percent": 50,
            },
        });
        if draft.padding > 0
            && let Some(fields) = payload.as_object_mut()
        {
            fields.insert("padding".into(), "x".repeat(draft.padding).into());
        }
        let payload_hash: [u8; 32] = Sha256::digest(serde_json::to_vec(&payload)?).into();
        let section = Section {
            cores_total: 64,
            memory_gb_total: 8,
            gpus_total: 0,
            storage_gb_total: 0,
            agent_version: "0.1.0".into(),
            gpu_type: String::new(),
            jobs: Vec::new(),
            jobs_total: 0,
            measurements: Vec::new(),
        }
        .encode();
        let figures = Figures {
            cores_available: u64::from(draft.cores_available),
            memory_gb_available: 4,
            ..Figures::default()
        };
        let report = Report {
            time: u32::try_from(draft.time)?,
            sequence: u32::try_from(draft.sequence)?,
            body: Body::saturating(HealthStatus::Healthy, &figures),
            section_digest: section_digest(&section),
            payload_hash,
        };
        let nonce = STANDARD.encode(draft.nonce);
        let text = auth_message(draft.node.as_str(), draft.time, &nonce, &payload_hash);
        Ok(json!({
            "heartbeat": payload,
            "auth": {
                "signature": signature(&draft.key, text.as_bytes(), draft.break_signature),
                "nonce": nonce,
                "timestamp": draft.time,
                "node_id": draft.node,
                "report": STANDARD.encode(report.encode()),
                "report_signature": signature(&draft.key, &report.message(&self.tag), draft.break_report_signature),
                "section": STANDARD.encode(&section),
            },
        }))
    }
}

fn signature(key: &SigningKey, message: &[u8], broken: bool) -> String {
    let mut signature: [u8; 64] = key.sign(message).into();
    if broken && let Some(byte) = signature.first_mut() {
        *byte ^= 1;
    }
    STANDARD.encode(signature)
}
