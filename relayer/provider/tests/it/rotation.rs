//! A live node changes its key through the gateway; what belonged to the old key counts no more.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::REGISTER_PATH;
use hpc_schema::node::NodeState;
use hpc_schema::registration::key_rotation_message;
use reqwest::Client;
use serde_json::{Value, json};
use virtengine_provider::clock;

use crate::agent::{Agent, client, csr, post, problem, registered};
use crate::settlement::shown;
use crate::site::{CHAIN_ID, Site, cluster, eventually};

/// The two fields by which the old key hands over to the new one.
fn rotation(site: &Site, old: &Agent, new: &Agent, nonce: [u8; 32]) -> [(&'static str, Value); 2] {
    let node = new.node.parse().unwrap();
    let message = key_rotation_message(
        CHAIN_ID,
        &site.contract,
        &cluster(),
        &node,
        new.seed.public(),
        &nonce,
    );
    [
        ("registration_nonce", json!(STANDARD.encode(nonce))),
        (
            "rotation_signature",
            json!(STANDARD.encode(old.seed.sign(&message))),
        ),
    ]
}

/// The body of a registration of a node that is probed at this address.
fn probed_at(site: &Site, agent: &Agent, address: &str) -> Value {
    let token = site.token(&agent.node, &agent.public(), "1h");
    let mut body = agent.register_body(&token, &agent.csr);
    body["probe_address"] = json!(address);
    body
}

/// Where the store has it that node-0001 is probed; the daemon is down.
fn on_disk(site: &Site) -> (Value, Value) {
    let node = shown(site, "node-0001");
    (node["probe_port"].clone(), node["probe_address"].clone())
}

/// A node that asks whom to measure.
struct Asks {
    agent: Agent,
    client: Client,
    sequence: u32,
}

impl Asks {
    async fn enrolled(site: &Site, node: &str) -> Self {
        let agent = Agent::enrolled(site, node).await;
        Self {
            client: agent.client(site),
            agent,
            sequence: 0,
        }
    }

    /// Where it is told to measure node-0001, once it is told of `node` as well.
    async fn told_beside(&mut self, site: &Site, node: &str) -> (String, u16) {
        let mut told = None;
        eventually("both neighbours", async || {
            self.sequence += 1;
            let peers = self.agent.beat(&self.client, site, self.sequence).await.peers;
            let of = |node: &str| peers.iter().find(|p| p.node_id.as_str() == node);
            told = of(node).and(of("node-0001")).map(|p| (p.address.clone(), p.port));
            told.is_some()
        })
        .await;
        told.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_node_rotates_its_key_through_the_gateway_and_keeps_its_state() {
    let site = Site::start().await;
    let old = Agent::enrolled(&site, "node-0001").await;
    let old_client = old.client(&site);
    assert!(old.beat(&old_client, &site, 1).await.accepted);
    site.wait_sequence(&old.node, 1).await;

    let mut new = Agent::new("node-0001");
    let token = site.token("node-0001", &new.public(), "1h");
    let open = client(&site.ca(), None);
    let body = new.register_body(&token, &csr(&new.tls));
    // Without the old key's consent the contract says no.
    eventually("node_exists", async || {
        let response = post(&open, &site, REGISTER_PATH, &body).await;
        response.status() != 202 && problem(response).await == (403, "node_exists".into())
    })
    .await;
    // With somebody else's, the gateway does.
    let stranger = Agent::new("node-0001");
    let mut forged = body.clone();
    for (key, value) in rotation(&site, &stranger, &new, clock::random().unwrap()) {
        forged[key] = value;
    }
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &forged).await).await,
        (403, "signature_invalid".into())
    );
    let mut half = body.clone();
    half["registration_nonce"] = json!(STANDARD.encode([1; 32]));
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &half).await).await,
        (400, "malformed".into())
    );
    // With the old key's, the node goes on under the new one.
    let mut sound = body.clone();
    for (key, value) in rotation(&site, &old, &new, clock::random().unwrap()) {
        sound[key] = value;
    }
    new.take(registered(&open, &site, &sound).await);
    assert_eq!(site.node(&new.node).await.state, NodeState::Active);
    let (before, now) = (old.registered.as_ref().unwrap(), new.registered.as_ref().unwrap());
    assert!(now.epoch > before.epoch);
    assert_eq!(now.last_sequence, 0, "the count begins anew");

    // The old certificate ends on its open connection as well.
    let body = old.heartbeat_text(2, clock::now_ms());
    assert_eq!(
        problem(old.send_text(&old_client, &site, body).await).await,
        (401, "identity_mismatch".into())
    );
    assert!(new.beat(&new.client(&site), &site, 1).await.accepted);
    site.wait_sequence(&new.node, 1).await;
    // The first registration's answer is not given again.
    let list: Value = serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_has_been_replaced_is_not_answered_with_its_certificate_again() {
    let mut site = Site::start().await;
    let mut old = Agent::new("node-0001");
    let body = probed_at(&site, &old, "198.51.100.7");
    let open = client(&site.ca(), None);
    old.take(registered(&open, &site, &body).await);
    assert_eq!(post(&open, &site, REGISTER_PATH, &body).await.status(), 200);
    let mut new = Agent::new("node-0001");
    let mut request = probed_at(&site, &new, "198.51.100.8");
    for (key, value) in rotation(&site, &old, &new, clock::random().unwrap()) {
        request[key] = value;
    }
    new.take(registered(&open, &site, &request).await);
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &body).await).await,
        (403, "token_used".into())
    );
    site.stop_daemon().await;
    // Nor does it say where the node is probed.
    assert_eq!(on_disk(&site), (json!(9001), json!("198.51.100.8")));
    site.start_daemon().await;
    // The same of one of the same key.
    let third = probed_at(&site, &new, "198.51.100.9");
    new.take(registered(&open, &site, &third).await);
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &request).await).await,
        (403, "token_used".into())
    );
    site.stop_daemon().await;
    assert_eq!(on_disk(&site), (json!(9001), json!("198.51.100.9")));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machines_registration_leaves_a_live_node_probed_where_it_was() {
    let mut site = Site::start().await;
    let open = client(&site.ca(), None);
    let mut live = Agent::new("node-0001");
    let body = probed_at(&site, &live, "198.51.100.7");
    live.take(registered(&open, &site, &body).await);
    assert!(live.beat(&live.client(&site), &site, 1).await.accepted);
    site.wait_sequence(&live.node, 1).await;
    let mut asks = Asks::enrolled(&site, "node-0002").await;

    let other = Agent::new("node-0001");
    let mut body = probed_at(&site, &other, "203.0.113.9");
    body["probe_port"] = json!(9002);
    eventually("node_exists", async || {
        let response = post(&open, &site, REGISTER_PATH, &body).await;
        response.status() != 202 && problem(response).await == (403, "node_exists".into())
    })
    .await;
    // Whoever is told of this one is told what came after that request.
    let later = Agent::enrolled(&site, "node-0003").await;
    assert!(later.beat(&later.client(&site), &site, 1).await.accepted);
    let where_it_was = ("198.51.100.7".to_owned(), 9001);
    assert_eq!(asks.told_beside(&site, "node-0003").await, where_it_was);
    site.stop_daemon().await;
    assert_eq!(on_disk(&site), (json!(9001), json!("198.51.100.7")));
    site.start_daemon().await;
    assert_eq!(asks.told_beside(&site, "node-0003").await, where_it_was);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revoked_while_its_registration_waits_registers_nobody() {
    let mut site = Site::prepare().await;
    // Without a chain nothing is sent, so the registration waits.
    let mut config = site.config();
    config.chain.rpc = vec!["http://127.0.0.1:1".into()];
    site.start_with(config).await;
    let agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    let open = client(&site.ca(), None);
    let body = agent.register_body(&token, &csr(&agent.tls));
    assert_eq!(post(&open, &site, REGISTER_PATH, &body).await.status(), 202);
    let list: Value = serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
    let (out, err, code) = site.run(&["node-token", "revoke", list[0]["jti"].as_str().unwrap()]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &body).await).await,
        (403, "token_invalid".into())
    );
    site.stop_daemon().await;
    // With the chain back, another node gets on record and this one does not.
    site.start_daemon().await;
    Agent::enrolled(&site, "node-0002").await;
    let asked = site
        .client
        .node(Some(cluster()), "node-0001".parse().unwrap())
        .await;
    assert!(asked.is_err(), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_waits_when_its_node_is_disabled_does_not_go_on_chain_until_it_is_asked_for_again() {
    let mut site = Site::start().await;
    let old = Agent::enrolled(&site, "node-0001").await;
    let before = site.node("node-0001").await.epoch;
    site.stop_daemon().await;
    // Without a chain nothing is sent, so the rotation waits.
    let mut config = site.config();
    config.chain.rpc = vec!["http://127.0.0.1:1".into()];
    site.start_with(config).await;
    let new = Agent::new("node-0001");
    let token = site.token("node-0001", &new.public(), "1h");
    let open = client(&site.ca(), None);
    let mut body = new.register_body(&token, &csr(&new.tls));
    for (key, value) in rotation(&site, &old, &new, clock::random().unwrap()) {
        body[key] = value;
    }
    assert_eq!(post(&open, &site, REGISTER_PATH, &body).await.status(), 202);
    let (_, err, code) = site.run(&["node", "disable", "node-0001", "--reason", "its key was stolen"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &body).await).await,
        (403, "node_disabled".into())
    );
    site.stop_daemon().await;
    // With the chain back, another node gets on record, and this one's key stays as it is.
    site.start_daemon().await;
    Agent::enrolled(&site, "node-0002").await;
    assert_eq!(site.node("node-0001").await.epoch, before);
    // The token is good once the node is let in.
    assert_eq!(site.run(&["node", "enable", "node-0001"]).2, 0);
    eventually("the rotation is on chain", async || {
        post(&open, &site, REGISTER_PATH, &body).await.status() == 200
    })
    .await;
    let node = site.node("node-0001").await;
    assert!(node.epoch > before && node.agent_pubkey == *new.seed.public());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_node_is_probed_survives_a_restart_between_request_and_chain() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.chain.rpc = vec!["http://127.0.0.1:1".into()];
    site.start_with(config).await;
    let agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    let open = client(&site.ca(), None);
    let mut body = agent.register_body(&token, &csr(&agent.tls));
    body["probe_address"] = json!("198.51.100.7");
    assert_eq!(post(&open, &site, REGISTER_PATH, &body).await.status(), 202);
    site.stop_daemon().await;
    // The agent does not ask again; the node comes on record all the same.
    site.start_daemon().await;
    eventually("node-0001 is on record", async || {
        site.run(&["node", "show", "node-0001"]).2 == 0
    })
    .await;
    site.stop_daemon().await;
    let node = shown(&site, "node-0001");
    assert_eq!(
        (&node["probe_port"], &node["probe_address"], &node["address"]),
        (&json!(9001), &json!("198.51.100.7"), &json!("127.0.0.1"))
    );
}
