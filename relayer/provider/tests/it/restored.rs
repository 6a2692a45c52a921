//! A gateway that was made from a backup works with the keys of before: the same CA, the same task key, the same token key.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hpc_schema::gateway::{CertificateResponse, certificate_path};
use hpc_schema::id::NodeId;
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::task::{TaskScope, WaitAnswer, verify_task, wait_path};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use reqwest::Client;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use virtengine_provider::clock;

use crate::agent::{Agent, client, csr, post};
use crate::process::beat;
use crate::site::{CHAIN_ID, Site, cluster, run};

/// What nodes and operators have of the gateway before it is lost.
pub(crate) struct Before {
    ca: String,
    task_key: AgentKey,
    /// A node that is still to be registered, and its token.
    late: Agent,
    token: String,
}

impl Before {
    /// Of a gateway at which this node is registered.
    pub(crate) fn of(site: &Site, agent: &Agent) -> Self {
        let late = Agent::new("node-0099");
        Self {
            ca: site.ca(),
            task_key: agent.registered.as_ref().unwrap().task_public_key.unwrap(),
            token: site.token(&late.node, &late.public(), "1h"),
            late,
        }
    }

    /// The gateway that was made anew on this directory, and answers at `site.elsewhere`, uses them. The node has sent no number
    /// from `sequence` on.
    pub(crate) async fn check_in_use(
        mut self,
        site: &Site,
        (home, env): (&Path, &[(String, String)]),
        agent: &Agent,
        sequence: u32,
    ) {
        let port = site.elsewhere.unwrap();
        let node: NodeId = agent.node.parse().unwrap();
        // The CA of before vouches for the gateway, and the node's certificate of before counts there.
        let old = client(&self.ca, Some((&agent.certificate, &agent.tls)));
        assert!(beat(agent, &old, port, sequence).await);
        // A renewed one is of that CA, by its own key and not only by its name, and counts.
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let renewal = json!({ "csr": csr(&key) });
        let answer = post(&old, site, &certificate_path(&node), &renewal).await;
        assert_eq!(answer.status(), 200);
        let renewed: CertificateResponse = answer.json().await.unwrap();
        vouches(&self.ca, &renewed.certificate);
        let new = client(&self.ca, Some((&renewed.certificate, &key)));
        assert!(beat(agent, &new, port, sequence + 1).await);
        // A token of before registers its node.
        self.late.register_trusting(site, &self.token, &self.ca).await;
        vouches(&self.ca, &self.late.certificate);
        let registered = self.late.registered.as_ref().unwrap();
        assert_eq!(registered.task_public_key, Some(self.task_key));
        // What is ordered from here on is signed by the key that nodes know.
        let submit = ["task", "submit", &agent.node, "--type", "diag.health_probe"];
        let (id, err, code) = run(home, env, &submit);
        assert_eq!(code, 0, "{err}");
        let told = told(site, &new, &node).await;
        let mut tasks = told.tasks.iter().map(|t| &t.task);
        let task = tasks.find(|t| t.task_id.as_str() == id.trim()).unwrap();
        let cluster_id = cluster();
        let scope = TaskScope {
            chain_id: CHAIN_ID,
            contract: &site.contract,
            cluster_id: &cluster_id,
            node_id: &node,
        };
        verify_task(task, &scope, &self.task_key, clock::now(), &ZebraVerifier).unwrap();
    }
}

/// What the node is told that asks for tasks.
async fn told(site: &Site, client: &Client, node: &NodeId) -> WaitAnswer {
    let url = format!("{}{}?wait_seconds=10", site.gateway(), wait_path(node));
    let answer = client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    // Not by way of a value: its parameters are signed as they stand.
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

/// This CA, and no other of its name, has issued this certificate of a node.
fn vouches(ca: &str, certificate: &str) {
    let one = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(one(ca)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(clock::now().0));
    let verified = verifier
        .build()
        .unwrap()
        .verify_client_cert(&one(certificate), &[], now);
    verified.unwrap();
}
