//! The floor: what no gateway can leave out for a heartbeat, each part alone in a tight loop on one thread.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::heartbeat::{HeartbeatRequest, auth_message, payload_hash};
use hpc_schema::key::Verifier as _;
use hpc_schema::report::Report;
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use virtengine_provider::admission::signatures::{self, Notes, Signatures};

use super::host::thread_cpu_ns;
use super::known::Known;
use super::{heartbeats, records};

/// CPU time of each part for one heartbeat, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Floor {
    /// Both signatures, in the daemon's batches.
    pub signatures: u64,
    /// SHA-256 of the payload.
    pub sha256: u64,
    /// The body from JSON into fields.
    pub json: u64,
    /// One record opened and one sealed.
    pub tls: u64,
}

impl Floor {
    /// All parts.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.signatures + self.sha256 + self.json + self.tls
    }

    /// Between this one and another.
    #[must_use]
    pub fn mean(self, other: Self) -> Self {
        Self {
            signatures: self.signatures.midpoint(other.signatures),
            sha256: self.sha256.midpoint(other.sha256),
            json: self.json.midpoint(other.json),
            tls: self.tls.midpoint(other.tls),
        }
    }

    /// Heartbeats that a CPU could do in a second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        1_000_000_000 / self.sum().max(1)
    }
}

/// What is measured with.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Nodes that speak.
    pub nodes: &'a [Known],
    /// TLS of both sides.
    pub client: Arc<ClientConfig>,
    /// The daemon's own configuration.
    pub server: Arc<ServerConfig>,
    /// Rounds over all nodes.
    pub rounds: usize,
}

/// A body's fields, borrowed where they can be: the least that reading JSON can do.
#[derive(Deserialize)]
#[expect(dead_code, reason = "what counts is that they are read")]
struct Body<'a> {
    #[serde(borrow)]
    heartbeat: Payload<'a>,
    auth: Auth<'a>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Auth<'a> {
    signature: &'a str,
    nonce: &'a str,
    timestamp: i64,
    node_id: &'a str,
    report: &'a str,
    report_signature: &'a str,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Payload<'a> {
    node_id: &'a str,
    cluster_id: &'a str,
    sequence_number: u32,
    timestamp: &'a str,
    agent_version: &'a str,
    #[serde(borrow)]
    capacity: Figures<'a>,
    #[serde(borrow)]
    health: Figures<'a>,
    #[serde(borrow)]
    latency: Latency<'a>,
    #[serde(borrow)]
    jobs: Jobs<'a>,
    #[serde(borrow)]
    services: Figures<'a>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Latency<'a> {
    #[serde(borrow)]
    measurements: Vec<Figures<'a>>,
    gateway_latency_us: u64,
    chain_latency_ms: u64,
    avg_cluster_latency_us: u64,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Jobs<'a> {
    running_count: u32,
    pending_count: u32,
    completed_24h: u32,
    failed_24h: u32,
    #[serde(borrow)]
    active_job_ids: Vec<&'a str>,
}

/// Values left as text: cheaper than any conversion.
type Figures<'a> = std::collections::BTreeMap<&'a str, &'a serde_json::value::RawValue>;

/// Measures all parts on this thread.
///
/// # Errors
/// If a heartbeat of our own does not verify.
pub fn measure(setting: &Setting<'_>) -> Result<Floor> {
    let bodies: Vec<Vec<u8>> = setting
        .nodes
        .iter()
        .map(|n| heartbeats::body(n, 1))
        .collect::<Result<_>>()?;
    let requests: Vec<HeartbeatRequest<'_>> = bodies
        .iter()
        .map(|b| serde_json::from_slice(b))
        .collect::<Result<_, _>>()?;
    let sent: Vec<Vec<u8>> = setting
        .nodes
        .iter()
        .map(|n| heartbeats::request(n, 1))
        .collect::<Result<_>>()?;
    let mut floor = Floor::default();
    let each = u64::try_from(bodies.len() * setting.rounds)?.max(1);
    let timed = |work: &mut dyn FnMut() -> Result<()>| -> Result<u64> {
        let before = thread_cpu_ns()?;
        for _ in 0..setting.rounds {
            work()?;
        }
        Ok(thread_cpu_ns()?.saturating_sub(before) / each)
    };
    let spoken: Vec<Spoken> = setting
        .nodes
        .iter()
        .zip(&requests)
        .map(|(n, r)| Spoken::of(n, r))
        .collect::<Result<_>>()?;
    floor.signatures = timed(&mut || {
        for batch in spoken.chunks(signatures::BATCH) {
            let noted: Vec<Signatures> = batch.iter().map(Spoken::noted).collect::<Result<_>>()?;
            ensure!(
                signatures::verify(&noted).iter().all(|good| *good),
                "a good signature does not verify"
            );
        }
        Ok(())
    })?;
    floor.sha256 = timed(&mut || {
        for request in &requests {
            black_box(Sha256::digest(black_box(request.heartbeat.get().as_bytes())));
        }
        Ok(())
    })?;
    floor.json = timed(&mut || {
        for body in &bodies {
            black_box(serde_json::from_slice::<Body<'_>>(black_box(body))?);
        }
        Ok(())
    })?;
    let answer = vec![b'x'; ANSWER];
    let mut tls = 0;
    for _ in 0..setting.rounds {
        let (client, server) = (Arc::clone(&setting.client), Arc::clone(&setting.server));
        tls += records::cost(client, server, &sent, &answer)?;
    }
    floor.tls = tls / u64::try_from(setting.rounds)?.max(1);
    Ok(floor)
}

/// Bytes of the daemon's usual answer, head and body.
const ANSWER: usize = 620;

/// Both messages of a heartbeat with their signatures.
struct Spoken {
    key: [u8; 32],
    text: String,
    signature: Vec<u8>,
    report: Vec<u8>,
    report_signature: Vec<u8>,
}

impl Spoken {
    fn of(node: &Known, request: &HeartbeatRequest<'_>) -> Result<Self> {
        let auth = &request.auth;
        let decoded = |field: &Option<String>| -> Result<Vec<u8>> {
            Ok(STANDARD.decode(field.as_deref().context("a field is absent")?)?)
        };
        let report = Report::decode(&decoded(&auth.report)?)
            .map_err(|code| anyhow::anyhow!("our own report: {code}"))?;
        let time = u64::try_from(auth.timestamp.context("no timestamp")?)?;
        Ok(Self {
            key: ed25519_zebra::VerificationKeyBytes::from(&node.key).into(),
            text: auth_message(
                node.id.as_str(),
                time,
                &auth.nonce,
                &payload_hash(&request.heartbeat),
            ),
            signature: STANDARD.decode(&auth.signature)?,
            report: report.message(&node.tag).to_vec(),
            report_signature: decoded(&auth.report_signature)?,
        })
    }

    fn noted(&self) -> Result<Signatures> {
        let notes = Notes::default();
        notes.verify(self.text.as_bytes(), &self.signature, &self.key);
        notes.verify(&self.report, &self.report_signature, &self.key);
        notes.into_signatures().context("a signature cannot be read")
    }
}
