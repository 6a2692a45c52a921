use std::fmt::Display;
use std::future::Future;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::command::{CommandScope, verify_command};
use hpc_schema::gateway::{REGISTER_PATH, heartbeat_path};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::registry::ExecuteMsg;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
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
    let hash = hpc_schema::heartbeat::payload_hash(&raw.into());
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
    // Who signed comes before what is on record, and a nonce is not lost to what nobody signed.
    let body = agent.heartbeat_with([6; 16], 6, now);
    let spoilt = |body: &str| {
        let mut v: Value = serde_json::from_str(body).unwrap();
        v["auth"]["report_signature"] = json!(wrong);
        let (payload, _) = body
            .strip_prefix("{\"heartbeat\":")
            .unwrap()
            .split_once(",\"auth\":")
            .unwrap();
        format!("{{\"heartbeat\":{payload},\"auth\":{}}}", v["auth"])
    };
    for body in [&body, &agent.heartbeat_text(5, now)] {
        assert_eq!(
            refused(&agent, &client, &site, spoilt(body)).await,
            "signature_invalid"
        );
    }
    assert!(answer(agent.send_text(&client, &site, body).await).await.accepted);
    // A nonce counts once, however often it is tried again.
    for sequence in 7..10 {
        let body = agent.heartbeat_with([6; 16], sequence, now);
        assert_eq!(refused(&agent, &client, &site, body).await, "nonce_reused");
    }
    site.wait_sequence(&agent.node, 6).await;
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
async fn nodes_are_told_how_often_to_sample_whom_to_probe_and_how_long_to_keep() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.agents.sampling_interval_seconds = Some(20);
    config.agents.metrics_retention_hours = Some(48);
    site.start_with(config).await;
    let (one, two) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    assert!(one.beat(&one.client(&site), &site, 1).await.accepted);
    let client = two.client(&site);
    let mut sequence = 0;
    eventually("all three updates", async || {
        sequence += 1;
        let response = two.beat(&client, &site, sequence).await;
        let updates = response.config_updates.unwrap();
        assert_eq!(updates.sampling_interval_seconds, Some(20));
        assert_eq!(updates.metrics_retention_hours, Some(48));
        let targets = updates.latency_probe_targets.unwrap_or_default();
        targets.iter().any(|t| t.as_str() == "node-0001")
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

/// An answer within seconds, whatever it says; one that does not come is a deadlock.
async fn answered(what: impl Display, sent: impl Future<Output = reqwest::Result<reqwest::Response>>) -> u16 {
    let sent = tokio::time::timeout(std::time::Duration::from_secs(20), sent).await;
    let sent = sent.unwrap_or_else(|_| panic!("{what}: no answer"));
    let status = sent.unwrap_or_else(|e| panic!("{what}: {e}")).status();
    assert!(status.as_u16() < 500, "{what}: {status}");
    status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_sequence_numbers_holds_up_neither_its_node_nor_another() {
    let site = Site::start().await;
    let (gaps, other) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    let (client, others) = (gaps.client(&site), other.client(&site));
    for (n, sequence) in [1, 3, 70, 71, 5_000, 4_000_000_000].into_iter().enumerate() {
        assert!(gaps.beat(&client, &site, sequence).await.accepted, "{sequence}");
        // One from within the gap is late, and is told so.
        if sequence > 2 {
            let late = gaps.beat(&client, &site, sequence - 1).await;
            assert_eq!(late.errors[0].code, "stale_sequence");
        }
        let next = u32::try_from(n).unwrap() + 1;
        assert!(other.beat(&others, &site, next).await.accepted);
    }
    site.wait_sequence(&gaps.node, 4_000_000_000).await;
    // Many at once over one gap: one of them counts last, and every one is answered.
    let url = format!(
        "{}{}",
        site.gateway(),
        heartbeat_path(&other.node.parse().unwrap())
    );
    let sent = (1..=4u32).map(|n| {
        let body = other.heartbeat_text(n * 1000, clock::now_ms());
        tokio::spawn(answered("at once", others.post(&url).body(body).send()))
    });
    for status in sent.collect::<Vec<_>>() {
        assert_eq!(status.await.unwrap(), 200);
    }
    assert!(other.beat(&others, &site, 17_000).await.accepted);
    site.wait_sequence(&other.node, 17_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_at_once_keys_of_three_bytes_and_spoilt_bodies_break_nothing() {
    let site = Site::start().await;
    let honest = Agent::enrolled(&site, "node-0001").await;
    let client = honest.client(&site);
    // At once, each three times over: one answer for all.
    let mut agents: Vec<_> = (2..8).map(|n| Agent::new(&format!("node-{n:04}"))).collect();
    let tokens: Vec<_> = agents
        .iter()
        .map(|a| site.token(&a.node, &a.public(), "1h"))
        .collect();
    let open = crate::agent::client(&site.ca(), None);
    let url = format!("{}{REGISTER_PATH}", site.gateway());
    let sent = agents.iter().zip(&tokens).flat_map(|(agent, token)| {
        let body = agent.register_body(token, &agent.csr);
        [(); 3].map(|()| tokio::spawn(answered("a registration", open.post(&url).json(&body).send())))
    });
    for status in sent.collect::<Vec<_>>() {
        assert!(matches!(status.await.unwrap(), 200 | 202));
    }
    for (agent, token) in agents.iter_mut().zip(&tokens) {
        agent.register(&site, token).await;
        assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    }

    // Keys that are none, of any length, and everything else that a body may hold instead.
    let token = site.token("node-0009", &Agent::new("node-0009").public(), "1h");
    let whole = Agent::new("node-0009");
    let whole = whole.register_body(&token, &whole.csr);
    let keys = [0, 1, 3, 31, 32, 33, 64, 4096].map(|n| json!(STANDARD.encode(vec![7u8; n])));
    let others = [
        json!(null),
        json!(3),
        json!([]),
        json!("\u{0}"),
        json!("é"),
        json!("a".repeat(20_000)),
    ];
    for field in whole.as_object().unwrap().keys() {
        for value in keys.iter().chain(&others) {
            let mut body = whole.clone();
            body[field] = value.clone();
            let shown: String = value.to_string().chars().take(60).collect();
            let what = format!("{field}: {shown}");
            let status = answered(&what, open.post(&url).json(&body).send()).await;
            // A name may be left out; a key is a key.
            assert!(field != "public_key" || status >= 400, "{what}: {status}");
        }
    }
    // A heartbeat in which a few bytes are others: by chance, and each time the same.
    let heartbeat = format!(
        "{}{}",
        site.gateway(),
        heartbeat_path(&honest.node.parse().unwrap())
    );
    let whole = honest.heartbeat_text(1, clock::now_ms()).into_bytes();
    let mut chance = StdRng::seed_from_u64(13);
    for n in 0..400 {
        let mut body = whole.clone();
        for _ in 0..chance.random_range(1..4) {
            let at = chance.random_range(0..body.len());
            match chance.random_range(0..3) {
                0 => body[at] = chance.random(),
                1 => body.truncate(at.max(1)),
                _ => drop(body.splice(at..at, b"0123456789[{\"".iter().copied())),
            }
        }
        answered(format!("spoilt {n}"), client.post(&heartbeat).body(body).send()).await;
    }
    assert!(honest.beat(&client, &site, 2).await.accepted, "and it works on");
    site.wait_sequence(&honest.node, 2).await;
}
