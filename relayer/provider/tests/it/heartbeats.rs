use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::command::{CommandScope, verify_command};
use hpc_schema::gateway::heartbeat_path;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::registry::ExecuteMsg;
use serde_json::{Value, json};
use virtengine_provider::clock;

use crate::agent::{Agent, answer, problem};
use crate::site::{CHAIN_ID, Site, cluster, eventually};

/// Code of a refused heartbeat.
async fn refused(agent: &Agent, client: &reqwest::Client, site: &Site, body: String) -> String {
    let response = answer(agent.send_text(client, site, body).await).await;
    assert!(!response.accepted);
    assert!(
        response.errors[0].message.contains("; "),
        "with a remedy: {}",
        response.errors[0].message
    );
    response.errors[0].code.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_refused_is_refused_with_its_code_and_nothing_is_stored() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let now = clock::now_ms();
    let edit = |f: &dyn Fn(&mut Value)| {
        let text = agent.heartbeat_text(5, now);
        let mut value: Value = serde_json::from_str(&text).unwrap();
        f(&mut value);
        // The payload itself must keep its bytes.
        let payload = text
            .split_once("\"heartbeat\":")
            .unwrap()
            .1
            .split_once(",\"auth\":")
            .unwrap()
            .0;
        format!("{{\"heartbeat\":{payload},\"auth\":{}}}", value["auth"])
    };
    let wrong = STANDARD.encode(agent.seed.sign(b"something else"));

    assert_eq!(
        refused(
            &agent,
            &client,
            &site,
            edit(&|v| v["auth"]["signature"] = json!(wrong))
        )
        .await,
        "signature_invalid"
    );
    assert_eq!(
        refused(
            &agent,
            &client,
            &site,
            edit(&|v| v["auth"]["report_signature"] = json!(wrong))
        )
        .await,
        "signature_invalid"
    );
    let other = Agent::new("node-0001").public();
    assert_eq!(
        refused(
            &agent,
            &client,
            &site,
            edit(&|v| v["auth"]["public_key"] = json!(other))
        )
        .await,
        "key_mismatch"
    );
    assert_eq!(
        refused(
            &agent,
            &client,
            &site,
            edit(&|v| {
                v["auth"].as_object_mut().unwrap().remove("report");
            })
        )
        .await,
        "report_missing"
    );
    assert_eq!(
        refused(&agent, &client, &site, agent.heartbeat_text(5, now - 6 * 60_000)).await,
        "timestamp_expired"
    );
    assert_eq!(
        refused(&agent, &client, &site, agent.heartbeat_text(5, now + 2 * 60_000)).await,
        "timestamp_in_future"
    );
    // Sequence 0, with a signature that holds over it.
    let payload = agent.heartbeat_text(5, now);
    let payload = payload
        .split_once("\"heartbeat\":")
        .unwrap()
        .1
        .split_once(",\"auth\":")
        .unwrap()
        .0;
    let payload = payload.replace("\"sequence_number\":5", "\"sequence_number\":0");
    let raw = serde_json::value::RawValue::from_string(payload.clone()).unwrap();
    let nonce = STANDARD.encode([9u8; 16]);
    let hash = hpc_schema::heartbeat::payload_hash(&raw);
    let text = hpc_schema::heartbeat::auth_message(&agent.node, now / 1000, &nonce, &hash);
    let signature = STANDARD.encode(agent.seed.sign(text.as_bytes()));
    let body = format!(
        "{{\"heartbeat\":{payload},\"auth\":{{\"nonce\":\"{nonce}\",\"signature\":\"{signature}\"}}}}"
    );
    assert_eq!(refused(&agent, &client, &site, body).await, "invalid_sequence");

    let metrics = site.ops("/metrics").await.1;
    assert!(
        metrics.contains("reports_waiting 0") && !metrics.contains("result=\"accepted\""),
        "{metrics}"
    );

    // A replay, after the first was taken.
    let body = agent.heartbeat_text(5, now);
    assert!(
        answer(agent.send_text(&client, &site, body.clone()).await)
            .await
            .accepted
    );
    assert_eq!(refused(&agent, &client, &site, body).await, "stale_sequence");
    assert_eq!(
        refused(&agent, &client, &site, agent.heartbeat_text(4, now)).await,
        "stale_sequence"
    );
    site.wait_sequence(&agent.node, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_cannot_be_read_are_problems() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let sent = async |body: String| problem(agent.send_text(&client, &site, body).await).await;
    for body in ["", "{", "[]", "{\"heartbeat\":{}}", "null"] {
        assert_eq!(sent(body.to_owned()).await, (400, "malformed".into()), "{body}");
    }
    let text = agent.heartbeat_text(5, clock::now_ms());
    let value: Value = serde_json::from_str(&text).unwrap();
    let nonce = value["auth"]["nonce"].as_str().unwrap();
    assert_eq!(
        sent(text.replace(nonce, "AAAA")).await,
        (400, "nonce_invalid".into())
    );
    let large = format!("{{\"x\":\"{}\"}}", "a".repeat(10_000_000));
    assert_eq!(sent(large).await, (413, "body_too_large".into()));
    // The connection, or a new one, goes on.
    assert!(agent.beat(&client, &site, 6).await.accepted);
    let url = format!(
        "{}{}",
        site.gateway(),
        heartbeat_path(&agent.node.parse().unwrap())
    );
    let zipped = client
        .post(&url)
        .header("content-encoding", "gzip")
        .body("x")
        .send()
        .await
        .unwrap();
    assert_eq!(problem(zipped).await.0, 415);
    assert_eq!(problem(client.get(&url).send().await.unwrap()).await.0, 405);
    assert_eq!(
        problem(client.post(format!("{}/x", site.gateway())).send().await.unwrap())
            .await
            .0,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_asks_too_often_is_told_when_to_come_again() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.requests_per_minute = 6;
    site.start_with(config).await;
    let (agent, other) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    let client = agent.client(&site);
    let mut limited = None;
    for sequence in 1..=8 {
        let response = agent
            .send_text(&client, &site, agent.heartbeat_text(sequence, clock::now_ms()))
            .await;
        if response.status() == 429 {
            limited = Some(response);
            break;
        }
    }
    let limited = limited.expect("no limit");
    let wait: u64 = limited.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=10).contains(&wait));
    assert_eq!(problem(limited).await.1, "rate_limited");
    assert!(
        other.beat(&other.client(&site), &site, 1).await.accepted,
        "the others are served on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_on_chain_reaches_the_node_signed_and_so_does_its_end() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let (cluster_id, node_id) = (cluster(), agent.node.parse().unwrap());
    let drain = ExecuteMsg::DrainNode {
        cluster_id: Some(cluster()),
        node_id: agent.node.parse().unwrap(),
        reason: Some("new memory".into()),
        until: None,
    };
    let mut sequence = 0;
    let mut next = async || {
        sequence += 1;
        agent.beat(&client, &site, sequence).await
    };
    assert!(next().await.commands.is_empty());
    site.owner_sends(&drain).await;
    let key = agent.registered.as_ref().unwrap().task_public_key.unwrap();
    let scope = CommandScope {
        chain_id: CHAIN_ID,
        contract: &site.contract,
        cluster_id: &cluster_id,
        node_id: &node_id,
    };
    let mut first = None;
    eventually("the drain", async || {
        first = next().await.commands.pop();
        first.is_some()
    })
    .await;
    let first = first.unwrap();
    let kind = verify_command(&first, &scope, &key, clock::now(), &ZebraVerifier).unwrap();
    assert_eq!(kind.as_str(), "drain");
    assert!(first.parameters.get().contains("new memory"));
    assert_eq!(
        next().await.commands[0].command_id,
        first.command_id,
        "one order, one id"
    );
    site.owner_sends(&ExecuteMsg::ResumeNode {
        cluster_id: Some(cluster()),
        node_id: agent.node.parse().unwrap(),
    })
    .await;
    eventually("the resume", async || {
        let commands = next().await.commands;
        let kind = verify_command(&commands[0], &scope, &key, clock::now(), &ZebraVerifier).unwrap();
        kind.as_str() == "resume"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_told_of_neighbours_to_measure() {
    let site = Site::start().await;
    let (one, two) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    assert!(one.beat(&one.client(&site), &site, 1).await.accepted);
    let client = two.client(&site);
    let mut sequence = 0;
    eventually("a neighbour", async || {
        sequence += 1;
        let response = two.beat(&client, &site, sequence).await;
        let Some(peer) = response.peers.first() else {
            return false;
        };
        assert_eq!(
            (peer.node_id.as_str(), peer.address.as_str(), peer.port),
            ("node-0001", "127.0.0.1", 9001)
        );
        assert_eq!(peer.public_key, *one.seed.public());
        true
    })
    .await;
}
