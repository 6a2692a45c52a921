//! The gateway as a client sees it, and registration there.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_zebra::SigningKey;
use hpc_schema::gateway::{RegisterResponse, register_message};
use hpc_schema::report::Tag;
use serde_json::{Value, json};

use super::agent::RawAgent;
use super::{Answer, public};
use crate::scene::Scene;
use crate::wait;

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

    pub(super) fn post(
        &self,
        path: &str,
        body: &Value,
        client: Option<(&PathBuf, &PathBuf)>,
    ) -> Result<Answer> {
        self.ask(path, Some(body), client)
    }

    /// GET without a body, POST with one.
    pub(super) fn ask(
        &self,
        path: &str,
        body: Option<&Value>,
        client: Option<(&PathBuf, &PathBuf)>,
    ) -> Result<Answer> {
        let (request, response) = (
            self.folder.join("request.json"),
            self.folder.join("response.json"),
        );
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
        curl.args(["-H", "expect:"]);
        curl.arg("--cacert").arg(&self.ca).arg("-o").arg(&response);
        if let Some(body) = body {
            fs::write(&request, serde_json::to_vec(body)?)?;
            curl.args(["-X", "POST", "--data-binary"]);
            curl.arg(format!("@{}", request.display()));
        }
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
