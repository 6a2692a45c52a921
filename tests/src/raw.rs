//! An agent written by hand: what it sends is built field by field, so that each field can be wrong. TLS and HTTP are
//! curl's, the bytes are those of `docs/protocol.md`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use hpc_schema::gateway::{RegisterResponse, register_message};
use hpc_schema::heartbeat::auth_message;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::HealthStatus;
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::scene::Scene;
use crate::{process, wait};

/// An Ed25519 key of a test: the seed is its number.
#[must_use]
pub fn key(number: u8) -> SigningKey {
    SigningKey::from([number; 32])
}

/// The public half, base64.
#[must_use]
pub fn public(key: &SigningKey) -> String {
    STANDARD.encode(<[u8; 32]>::from(VerificationKeyBytes::from(key)))
}

/// Seconds since 1970.
///
/// # Errors
/// If the clock stands before 1970.
pub fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// What the gateway answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status; 0 if the TLS handshake or the connection failed.
    pub status: u16,
    /// The body, null if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// The stable code: of a problem, of the response's first entry in `errors`, or of a pending registration.
    #[must_use]
    pub fn code(&self) -> &str {
        let pointers = ["/code", "/response/errors/0/code"];
        pointers
            .iter()
            .find_map(|p| self.body.pointer(p))
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// True if the heartbeat was taken.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.body.pointer("/response/accepted").and_then(Value::as_bool) == Some(true)
    }

    /// One word for it: `accepted`, or status and code.
    #[must_use]
    pub fn word(&self) -> String {
        if self.accepted() {
            "accepted".into()
        } else {
            format!("{} {}", self.status, self.code())
        }
    }
}

/// A registration request, complete; the same one may be sent again.
#[derive(Debug, Clone)]
pub struct Registration {
    body: Value,
    tls_key: String,
}

impl Registration {
    /// Fills in the request for `token`, with a fresh certificate request.
    ///
    /// # Errors
    /// If the token is no JWT.
    pub fn new(token: &str, key: &SigningKey) -> Result<Self> {
        let tls = rcgen::KeyPair::generate()?;
        let csr = rcgen::CertificateParams::default().serialize_request(&tls)?;
        let claims = token.split('.').nth(1).context("the token is no JWT")?;
        let claims: Value = serde_json::from_slice(
            &URL_SAFE_NO_PAD
                .decode(claims)
                .map_err(|e| anyhow!("the token is no JWT: {e}"))?,
        )?;
        let jti = claims
            .get("jti")
            .and_then(Value::as_str)
            .context("the token has no jti")?;
        let signature: [u8; 64] = key.sign(&register_message(jti, csr.der())).into();
        let body = json!({
            "token": token,
            "public_key": public(key),
            "csr": csr.pem()?,
            "csr_signature": STANDARD.encode(signature),
            "hostname": "test-host",
            "agent_version": "0.1.0",
        });
        Ok(Self {
            body,
            tls_key: tls.serialize_pem(),
        })
    }
}

/// A registered node without an agent: the test is the agent.
#[derive(Debug, Clone)]
pub struct RawAgent {
    gateway: Gateway,
    /// The key it registered.
    pub key: SigningKey,
    /// Its place, as the certificate names it.
    pub node: NodeId,
    cluster: ClusterId,
    tag: Tag,
    certificate: PathBuf,
    tls_key: PathBuf,
}

/// The gateway as a client sees it.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// `https://127.0.0.1:port`.
    pub url: String,
    /// The CA's certificate, PEM.
    pub ca: PathBuf,
    /// Where this client keeps its files.
    pub folder: PathBuf,
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

impl Gateway {
    /// Sends a registration once.
    ///
    /// # Errors
    /// If curl cannot be run.
    pub fn register_once(&self, registration: &Registration) -> Result<Answer> {
        self.post("/api/v1/hpc/nodes/register", &registration.body, None)
    }

    /// Registers a node: sends the same request until it is answered with a certificate.
    ///
    /// # Errors
    /// If the gateway refuses it, or does not answer 200 within a minute.
    pub fn register(&self, scene: &Scene, token: &str, key: &SigningKey) -> Result<RawAgent> {
        let registration = Registration::new(token, key)?;
        let answer = wait::until("the registration on chain", Duration::from_secs(60), || {
            let answer = self.register_once(&registration)?;
            Ok((answer.status != 202).then_some(answer))
        })?;
        ensure!(answer.status == 200, "the registration was refused: {answer:?}");
        let registered: RegisterResponse = serde_json::from_value(answer.body)?;
        let folder = scene.folder(&format!("raw-{}", registered.node_id))?;
        let (certificate, tls_key) = (folder.join("client.crt"), folder.join("client.key"));
        fs::write(&certificate, &registered.certificate)?;
        fs::write(&tls_key, &registration.tls_key)?;
        let tag = Tag::derive(
            &registered.chain_id,
            &registered.contract,
            &registered.cluster_id,
            &registered.node_id,
            registered.epoch,
        );
        Ok(RawAgent {
            gateway: self.clone(),
            key: *key,
            node: registered.node_id,
            cluster: registered.cluster_id,
            tag,
            certificate,
            tls_key,
        })
    }

    fn post(&self, path: &str, body: &Value, client: Option<(&PathBuf, &PathBuf)>) -> Result<Answer> {
        let (request, response) = (
            self.folder.join("request.json"),
            self.folder.join("response.json"),
        );
        fs::write(&request, serde_json::to_vec(body)?)?;
        drop(fs::remove_file(&response));
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "--max-time",
            "30",
            "-w",
            "%{http_code}",
            "-H",
            "content-type: application/json",
        ]);
        // curl asks for permission before a large body; the answer to the body itself is what is tested.
        curl.args(["-H", "expect:", "-X", "POST"]);
        curl.arg("--cacert").arg(&self.ca).arg("-o").arg(&response);
        curl.arg("--data-binary").arg(format!("@{}", request.display()));
        if let Some((certificate, key)) = client {
            curl.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let output = curl
            .arg(format!("{}{path}", self.url))
            .output()
            .context("curl is missing")?;
        let status = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap_or(0);
        let body = fs::read(&response)
            .ok()
            .and_then(|b| serde_json::from_slice(&b).ok());
        Ok(Answer {
            status,
            body: body.unwrap_or(Value::Null),
        })
    }
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

/// Fails with what differs from the expected word.
///
/// # Errors
/// If the answer is another one.
pub fn expect(answer: &Answer, word: &str) -> Result<()> {
    if answer.word() != word {
        bail!("expected {word:?}, got {:?}: {}", answer.word(), answer.body);
    }
    Ok(())
}

/// Adds `curl` to what a test needs; named early, with its remedy.
///
/// # Errors
/// If it is missing.
pub fn need_curl() -> Result<()> {
    process::output(Command::new("curl").arg("--version"))
        .context("curl is missing. Remedy: apt-get install curl")
        .map(drop)
}
