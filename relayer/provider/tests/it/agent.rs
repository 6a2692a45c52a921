//! A node's agent as the protocol describes it: keys, registration, signed heartbeats, nothing more.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{
    HeartbeatResponse, HeartbeatResponseBody, Problem, REGISTER_PATH, RegisterResponse, heartbeat_path,
    register_message,
};
use hpc_schema::heartbeat::{Heartbeat, SignHeartbeat, sign_heartbeat};
use hpc_schema::report::Tag;
use hpc_schema::time::Rfc3339;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use reqwest::{Certificate, Client, Identity, Response};
use serde_json::{Value, json};
use virtengine_provider::clock;
use virtengine_provider::config::Config;
use virtengine_provider::identity::Seed;

use crate::site::{CHAIN_ID, CLUSTER, Site};

pub(crate) struct Agent {
    pub(crate) node: String,
    pub(crate) seed: Seed,
    pub(crate) tls: KeyPair,
    pub(crate) certificate: String,
    pub(crate) registered: Option<RegisterResponse>,
    /// The one request that it makes.
    pub(crate) csr: String,
    tag: Option<Tag>,
}

/// A client that knows the CA and shows `identity`, if any.
pub(crate) fn client(ca: &str, identity: Option<(&str, &KeyPair)>) -> Client {
    client_at(None, ca, identity)
}

/// The same, from this address.
pub(crate) fn client_at(from: Option<IpAddr>, ca: &str, identity: Option<(&str, &KeyPair)>) -> Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = Client::builder()
        .tls_certs_only([Certificate::from_pem(ca.as_bytes()).unwrap()])
        .local_address(from)
        .timeout(std::time::Duration::from_secs(20));
    if let Some((certificate, key)) = identity {
        let pem = format!("{certificate}\n{}", key.serialize_pem());
        builder = builder.identity(Identity::from_pem(pem.as_bytes()).unwrap());
    }
    builder.build().unwrap()
}

pub(crate) fn csr(key: &KeyPair) -> String {
    CertificateParams::default()
        .serialize_request(key)
        .unwrap()
        .pem()
        .unwrap()
}

pub(crate) fn der(pem: &str) -> Vec<u8> {
    x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes())
        .next()
        .unwrap()
        .unwrap()
        .contents
}

/// The code of a problem, with its status.
pub(crate) async fn problem(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let text = response.text().await.unwrap();
    assert_eq!(kind, Problem::MEDIA_TYPE, "{text}");
    let problem: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!(problem.status, status);
    assert!(problem.detail.contains("; "), "with a remedy: {}", problem.detail);
    (status, problem.code)
}

impl Agent {
    pub(crate) fn new(node: &str) -> Self {
        let tls = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let csr = csr(&tls);
        Self {
            node: node.to_owned(),
            seed: Seed::from_bytes(&clock::random().unwrap()).unwrap(),
            tls,
            certificate: String::new(),
            registered: None,
            csr,
            tag: None,
        }
    }

    /// A node that is registered on chain and has its certificate.
    pub(crate) async fn enrolled(site: &Site, node: &str) -> Self {
        let mut agent = Self::new(node);
        let token = site.token(node, &agent.public(), "1h");
        agent.register(site, &token).await;
        agent
    }

    /// The same, of a gateway that is configured like this from then on: enrolling may take longer than it allows.
    pub(crate) async fn enrolled_before(change: impl FnOnce(&mut Config)) -> (Site, Self) {
        let mut site = Site::start().await;
        let agent = Self::enrolled(&site, "node-0001").await;
        site.stop_daemon().await;
        let mut config = site.config();
        change(&mut config);
        site.start_with(config).await;
        site.has_read().await;
        (site, agent)
    }

    pub(crate) fn public(&self) -> String {
        self.seed.public().to_base64()
    }

    /// The body of a registration with this certificate request.
    pub(crate) fn register_body(&self, token: &str, csr: &str) -> Value {
        let claims = token.split('.').nth(1).unwrap();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(claims)
            .unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        let message = register_message(claims["jti"].as_str().unwrap(), &der(csr));
        json!({
            "token": token,
            "public_key": self.public(),
            "csr": csr,
            "csr_signature": STANDARD.encode(self.seed.sign(&message)),
            "hostname": "compute-042",
            "hardware_fingerprint": hex::encode(self.seed.public().as_bytes()),
            "agent_version": "0.1.0",
            "probe_port": 9001,
        })
    }

    /// Registers, repeating the same request until the chain has it.
    pub(crate) async fn register(&mut self, site: &Site, token: &str) {
        self.register_trusting(site, token, &site.ca()).await;
    }

    /// The same, with a gateway whom this CA vouches for.
    pub(crate) async fn register_trusting(&mut self, site: &Site, token: &str, ca: &str) {
        let body = self.register_body(token, &self.csr);
        self.take(registered(&client(ca, None), site, &body).await);
    }

    pub(crate) fn take(&mut self, answer: RegisterResponse) {
        let (cluster, node) = (CLUSTER.parse().unwrap(), self.node.parse().unwrap());
        self.tag = Some(Tag::derive(
            CHAIN_ID,
            &answer.contract,
            &cluster,
            &node,
            answer.epoch,
        ));
        self.certificate = answer.certificate.clone();
        self.registered = Some(answer);
    }

    pub(crate) fn client(&self, site: &Site) -> Client {
        client(&site.ca(), Some((&self.certificate, &self.tls)))
    }

    /// A sound payload.
    pub(crate) fn payload(&self, sequence: u32, at_ms: u64) -> Heartbeat {
        let timestamp =
            Rfc3339::from_unix(at_ms / 1000, u32::try_from(at_ms % 1000 * 1_000_000).unwrap()).unwrap();
        let value = json!({
            "node_id": self.node, "cluster_id": CLUSTER, "sequence_number": sequence, "timestamp": timestamp,
            "agent_version": "0.1.0",
            "capacity": { "cpu_cores_total": 64, "cpu_cores_available": 32, "memory_gb_total": 256,
                          "memory_gb_available": 128, "gpus_total": 4, "gpus_available": 2 },
            "health": { "status": "healthy", "uptime_seconds": 100 },
            "jobs": { "running_count": 0 },
        });
        Heartbeat::parse(&serde_json::value::to_raw_value(&value).unwrap().into()).unwrap()
    }

    /// The body of a heartbeat, signed as it should be: text, so that the payload's bytes stay what they are.
    pub(crate) fn heartbeat_text(&self, sequence: u32, at_ms: u64) -> String {
        self.heartbeat_with(clock::random().unwrap(), sequence, at_ms)
    }

    /// The same with this nonce.
    pub(crate) fn heartbeat_with(&self, nonce: [u8; 16], sequence: u32, at_ms: u64) -> String {
        let heartbeat = self.payload(sequence, at_ms);
        let what = SignHeartbeat {
            heartbeat: &heartbeat,
            nonce,
            tag: self.tag.as_ref().unwrap(),
            job_ids: self.registered.as_ref().unwrap().job_ids,
            settled_section: None,
        };
        let signed = sign_heartbeat(&what, |m| Ok::<_, ()>(self.seed.sign(m))).unwrap();
        serde_json::to_string(&signed.request).unwrap()
    }

    pub(crate) async fn send_text(&self, client: &Client, site: &Site, body: String) -> Response {
        self.try_send_text(client, site, body).await.unwrap()
    }

    /// The same, where the connection may end first.
    pub(crate) async fn try_send_text(
        &self,
        client: &Client,
        site: &Site,
        body: String,
    ) -> reqwest::Result<Response> {
        let url = format!(
            "{}{}",
            site.gateway(),
            heartbeat_path(&self.node.parse().unwrap())
        );
        client.post(url).body(body).send().await
    }

    /// Sends a sound heartbeat made now.
    pub(crate) async fn beat(&self, client: &Client, site: &Site, sequence: u32) -> HeartbeatResponse {
        let body = self.heartbeat_text(sequence, clock::now_ms());
        answer(self.send_text(client, site, body).await).await
    }
}

/// A heartbeat's answer.
pub(crate) async fn answer(response: Response) -> HeartbeatResponse {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<HeartbeatResponseBody>(&text)
        .unwrap()
        .response
}

/// Repeats the same registration until the chain has it.
pub(crate) async fn registered(open: &Client, site: &Site, body: &Value) -> RegisterResponse {
    for _ in 0..600 {
        let response = post(open, site, REGISTER_PATH, body).await;
        match response.status().as_u16() {
            200 => return response.json().await.unwrap(),
            202 => {
                assert!(response.headers().contains_key("retry-after"));
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            _ => panic!("{:?}", problem(response).await),
        }
    }
    panic!("not registered");
}

pub(crate) async fn post(client: &Client, site: &Site, path: &str, body: &Value) -> Response {
    client
        .post(format!("{}{path}", site.gateway()))
        .json(body)
        .send()
        .await
        .unwrap()
}
