//! Orders to nodes: told until acknowledged, on record afterwards; and what operators decide about a node's traffic.

use std::time::{Duration, Instant};

use hpc_schema::command::{CommandScope, verify_command};
use hpc_schema::gateway::{HeartbeatResponse, Problem, REGISTER_PATH, certificate_path, heartbeat_path};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::node::NodeState;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use virtengine_provider::clock;
use virtengine_provider::config::Span;

use crate::agent::{self, Agent, answer, csr, post, problem, registered};
use crate::raw;
use crate::site::{CHAIN_ID, Site, cluster, eventually, run};

/// A decision takes effect within a second. A machine that does much else may take its time now and then, not every time.
const PROMISED: Duration = Duration::from_secs(1);
const TRIES: u32 = 5;
const AT_MOST: Duration = Duration::from_secs(10);

async fn beat_with(
    agent: &Agent,
    client: &reqwest::Client,
    site: &Site,
    sequence: u32,
    acks: Value,
) -> HeartbeatResponse {
    let text = agent.heartbeat_text(sequence, clock::now_ms());
    // Put in as text: the payload's bytes are signed.
    let text = format!(
        "{},\"acknowledgements\":{acks}}}",
        text.strip_suffix('}').unwrap()
    );
    answer(agent.send_text(client, site, text).await).await
}

fn show(site: &Site, id: &str) -> Value {
    let (out, err, code) = site.run(&["command", "show", id, "-o", "json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_told_signed_until_the_node_acknowledges_it() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let send = ["command", "send", "node-0001", "--type", "run_diagnostic"];
    let (_, err, code) = site.run(&[&send[..], &["--parameters", r#"{"name":"rm -rf /"}"#]].concat());
    assert!(code != 0 && err.contains("[a-z0-9_-]"), "{err}");
    let (out, err, code) = site.run(&[&send[..], &["--parameters", r#"{"name":"gpu_memory"}"#]].concat());
    assert_eq!(code, 0, "{err}");
    let id = out.trim().to_owned();
    let mut sequence = 0;
    let mut told = None;
    eventually("the order", async || {
        sequence += 1;
        told = agent.beat(&client, &site, sequence).await.commands.pop();
        told.is_some()
    })
    .await;
    let told = told.unwrap();
    assert_eq!(
        (&told.command_id, told.command_type.as_str()),
        (&id, "run_diagnostic")
    );
    let (cluster_id, node_id) = (cluster(), agent.node.parse().unwrap());
    let scope = CommandScope {
        chain_id: CHAIN_ID,
        contract: &site.contract,
        cluster_id: &cluster_id,
        node_id: &node_id,
    };
    let key = agent.registered.as_ref().unwrap().task_public_key.unwrap();
    verify_command(&told, &scope, &key, clock::now(), &ZebraVerifier).unwrap();
    // A restart forgets nothing.
    site.stop_daemon().await;
    site.start_daemon().await;
    sequence += 1;
    let again = agent.beat(&client, &site, sequence).await.commands.pop().unwrap();
    assert_eq!(again.signature, told.signature, "the same order, the same bytes");
    // Under way, then done; nothing is told again, and the very answer to the acknowledgement is without it.
    for (status, state) in [("accepted", "accepted"), ("done", "done")] {
        sequence += 1;
        let acks = json!([{ "command_id": id, "status": status, "detail": "0 errors" }]);
        let response = beat_with(&agent, &client, &site, sequence, acks).await;
        assert!(response.accepted && response.commands.is_empty(), "{response:?}");
        assert_eq!(show(&site, &id)["state"], state);
    }
    assert_eq!(show(&site, &id)["detail"], "0 errors");
    assert!(show(&site, &id)["told_at"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_acknowledges_for_another_and_what_is_taken_back_is_told_no_more() {
    let site = Site::start().await;
    let (one, two) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    let send = ["command", "send", "node-0001", "--type", "shutdown"];
    let id = site.run(&send).0.trim().to_owned();
    let client = two.client(&site);
    let acks = json!([{ "command_id": id, "status": "done" }]);
    assert!(beat_with(&two, &client, &site, 1, acks).await.accepted);
    assert_eq!(show(&site, &id)["state"], "pending");
    let many: Vec<_> = (0..17)
        .map(|i| json!({ "command_id": format!("c{i}"), "status": "done" }))
        .collect();
    let text = two.heartbeat_text(2, clock::now_ms());
    let text = format!(
        "{},\"acknowledgements\":{}}}",
        text.strip_suffix('}').unwrap(),
        json!(many)
    );
    assert_eq!(
        problem(two.send_text(&client, &site, text).await).await,
        (400, "malformed".into())
    );
    assert_eq!(site.run(&["command", "cancel", &id]).2, 0);
    let client = one.client(&site);
    let mut sequence = 0;
    eventually("nothing is told", async || {
        sequence += 1;
        one.beat(&client, &site, sequence).await.commands.is_empty()
    })
    .await;
    assert_ne!(site.run(&["command", "cancel", &id]).2, 0, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_counts_with_a_heartbeat_of_the_node_s_key_and_not_while_it_is_disabled() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    let send = ["command", "send", "node-0001", "--type", "shutdown"];
    let id = site.run(&send).0.trim().to_owned();
    let acks = || json!([{ "command_id": id, "status": "done" }]);
    // Whoever has the certificate alone.
    let mut thief = Agent::new("node-0001");
    thief.take(agent.registered.clone().unwrap());
    let answer = beat_with(&thief, &client, &site, 2, acks()).await;
    assert!(!answer.accepted);
    assert_eq!(show(&site, &id)["state"], "pending");
    let (_, err, code) = site.run(&["node", "disable", "node-0001", "--reason", "stolen"]);
    assert_eq!(code, 0, "{err}");
    let mut sequence = 1;
    eventually("the node is disabled", async || {
        sequence += 1;
        !agent.beat(&client, &site, sequence).await.accepted
    })
    .await;
    sequence += 1;
    let answer = beat_with(&agent, &client, &site, sequence, acks()).await;
    assert_eq!(answer.errors[0].code, "node_disabled");
    assert_eq!(show(&site, &id)["state"], "pending");
    assert_eq!(site.run(&["node", "enable", "node-0001"]).2, 0);
    eventually("the node is heard again", async || {
        sequence += 1;
        agent.beat(&client, &site, sequence).await.accepted
    })
    .await;
    // Its answer was lost: the same number again says what it says.
    let answer = beat_with(&agent, &client, &site, sequence, acks()).await;
    assert_eq!(answer.errors[0].code, "stale_sequence");
    assert_eq!(show(&site, &id)["state"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_command_lines_drain_at_once_and_neither_takes_the_others_sequence() {
    const NODES: [&str; 2] = ["node-0001", "node-0002"];
    let site = Site::start().await;
    for node in NODES {
        let agent = Agent::enrolled(&site, node).await;
        assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
        site.wait_sequence(node, 1).await;
    }
    for act in ["drain", "resume", "drain"] {
        let acts = NODES.map(|node| {
            let (home, env) = (site.home(), site.env());
            tokio::task::spawn_blocking(move || run(&home, &env, &["node", act, node]))
        });
        for act in acts {
            let (out, err, code) = act.await.unwrap();
            assert_eq!(code, 0, "{out}{err}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_by_the_command_line_is_recorded_on_chain_and_told_until_acknowledged() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    site.wait_sequence(&agent.node, 1).await;
    let (out, err, code) = site.run(&["node", "drain", "node-0001", "--reason", "new memory"]);
    assert_eq!(code, 0, "{out}{err}");
    let mut sequence = 1;
    let mut told = None;
    eventually("the drain", async || {
        sequence += 1;
        told = agent.beat(&client, &site, sequence).await.commands.pop();
        told.is_some()
    })
    .await;
    let told = told.unwrap();
    assert_eq!(told.command_type, "drain");
    sequence += 1;
    let acks = json!([{ "command_id": told.command_id, "status": "done" }]);
    assert!(
        beat_with(&agent, &client, &site, sequence, acks)
            .await
            .commands
            .is_empty()
    );
    // While it is in force the node stays drained, and is not told again.
    for _ in 0..5 {
        sequence += 1;
        assert!(agent.beat(&client, &site, sequence).await.commands.is_empty());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let state = site.node(&agent.node).await.state;
    assert!(
        matches!(state, NodeState::Draining | NodeState::Drained),
        "{state:?}"
    );
    let (out, err, code) = site.run(&["node", "resume", "node-0001"]);
    assert_eq!(code, 0, "{out}{err}");
    eventually("the resume", async || {
        sequence += 1;
        let commands = agent.beat(&client, &site, sequence).await.commands;
        commands.iter().any(|c| c.command_type == "resume")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_node_is_told_why_within_a_second_on_its_open_connection() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    let (mut sequence, mut tries) = (1, 0);
    let refused = loop {
        let (_, err, code) = site.run(&["node", "disable", "node-0001", "--reason", "disk is failing"]);
        assert_eq!(code, 0, "{err}");
        let decided = Instant::now();
        let refused = loop {
            sequence += 1;
            let answer = agent.beat(&client, &site, sequence).await;
            assert!(decided.elapsed() < AT_MOST, "{:?}", decided.elapsed());
            if !answer.accepted {
                break answer;
            }
        };
        tries += 1;
        if decided.elapsed() < PROMISED {
            break refused;
        }
        assert!(tries < TRIES, "never within {PROMISED:?}");
        assert_eq!(site.run(&["node", "enable", "node-0001"]).2, 0);
        eventually("the node is heard again", async || {
            sequence += 1;
            agent.beat(&client, &site, sequence).await.accepted
        })
        .await;
    };
    assert_eq!(refused.errors[0].code, "node_disabled");
    assert!(
        refused.errors[0].message.contains("disk is failing"),
        "{:?}",
        refused.errors
    );
    // No new certificate either, by renewal.
    let path = certificate_path(&agent.node.parse().unwrap());
    let renewal = json!({ "csr": csr(&agent.tls) });
    assert_eq!(
        problem(post(&client, &site, &path, &renewal).await).await,
        (403, "node_disabled".into())
    );
    // Nor by another registration, of which nothing goes on chain; its token is good once the node is let in again.
    let token = site.token("node-0001", &agent.public(), "1h");
    let body = agent.register_body(&token, &agent.csr);
    let open = agent::client(&site.ca(), None);
    let registers: Problem = post(&open, &site, REGISTER_PATH, &body)
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(
        (registers.status, registers.code.as_str()),
        (403, "node_disabled")
    );
    assert!(registers.detail.contains("disk is failing"), "{registers:?}");
    let tokens: Value = serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
    let states: Vec<_> = tokens.as_array().unwrap().iter().map(|t| &t["state"]).collect();
    assert!(states.contains(&&json!("open")), "{tokens}");
    let shown: Value = serde_json::from_str(&site.run(&["node", "list", "-o", "json"]).0).unwrap();
    assert_eq!(shown[0]["disabled"], "disk is failing");
    let before = agent.registered.as_ref().unwrap().epoch;
    assert_eq!(site.node("node-0001").await.epoch, before);
    assert_eq!(site.run(&["node", "enable", "node-0001"]).2, 0);
    eventually("the node is heard again", async || {
        sequence += 1;
        agent.beat(&client, &site, sequence).await.accepted
    })
    .await;
    assert!(registered(&open, &site, &body).await.epoch > before);
}

/// How long a node's open connection outlives the revocation of its certificate.
async fn revoked_after(site: &Site, node: &str) -> Duration {
    let agent = Agent::enrolled(site, node).await;
    let client = agent.client(site);
    assert!(agent.beat(&client, site, 1).await.accepted);
    let mut idle = raw::tls(site, Some((&agent.certificate, &agent.tls))).await;
    let (_, err, code) = site.run(&["certificate", "revoke", "--node-id", node]);
    assert_eq!(code, 0, "{err}");
    let (mut sequence, decided) = (1, Instant::now());
    let refused = loop {
        sequence += 1;
        let body = agent.heartbeat_text(sequence, clock::now_ms());
        // One that was under way when it came may be cut off.
        match agent.try_send_text(&client, site, body).await {
            Ok(answer) if answer.status() != 200 => break answer,
            _ => assert!(decided.elapsed() < AT_MOST, "{:?}", decided.elapsed()),
        }
    };
    let after = decided.elapsed();
    assert_eq!(refused.headers()["connection"], "close");
    assert_eq!(problem(refused).await, (401, "identity_mismatch".into()));
    let mut byte = [0; 1];
    let ended = tokio::time::timeout(Duration::from_secs(5), idle.read(&mut byte)).await;
    assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
    after
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_within_a_second_on_open_connections() {
    let site = Site::start().await;
    let other = Agent::enrolled(&site, "node-0001").await;
    let others = other.client(&site);
    assert!(other.beat(&others, &site, 1).await.accepted);
    let mut best = Duration::MAX;
    let mut tries = 0;
    while best >= PROMISED && tries < TRIES {
        tries += 1;
        best = best.min(revoked_after(&site, &format!("node-1{tries:03}")).await);
    }
    assert!(best < PROMISED, "{best:?}");
    assert!(other.beat(&others, &site, 2).await.accepted, "nobody else's");
    let list: Value = serde_json::from_str(&site.run(&["certificate", "list", "-o", "json"]).0).unwrap();
    let revoked = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["revoked_at"].is_number());
    assert_eq!(revoked.count(), usize::try_from(tries).unwrap());
}

/// A connection on which a node has brought a heartbeat, and says nothing from then on; gives when it ended.
async fn silent(site: &Site, agent: &Agent) -> JoinHandle<Instant> {
    let mut stream = raw::tls(site, Some((&agent.certificate, &agent.tls))).await;
    let body = agent.heartbeat_text(1, clock::now_ms());
    let path = heartbeat_path(&agent.node.parse().unwrap());
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let (mut answer, mut bytes) = (String::new(), vec![0; 4096]);
    while !answer.contains("\"accepted\":true") {
        let read = tokio::time::timeout(AT_MOST, stream.read(&mut bytes)).await;
        let read = read.expect("answered").unwrap();
        assert!(read > 0, "closed after {answer}");
        answer.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    tokio::spawn(async move {
        // The end of the answer may come by itself.
        while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        Instant::now()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_says_nothing_ends_within_a_second_of_its_certificates_revocation() {
    let site = Site::start().await;
    let other = Agent::enrolled(&site, "node-0001").await;
    let others = silent(&site, &other).await;
    // Nothing but the revocation closes one in the minutes of this test.
    assert!(site.config().gateway.idle_timeout >= Span::seconds(180));
    let mut best = Duration::MAX;
    for number in 1..=TRIES {
        let node = format!("node-1{number:03}");
        let agent = Agent::enrolled(&site, &node).await;
        let idle = silent(&site, &agent).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!idle.is_finished(), "it is idle, and open");
        let (_, err, code) = site.run(&["certificate", "revoke", "--node-id", &node]);
        assert_eq!(code, 0, "{err}");
        let decided = Instant::now();
        let ended = tokio::time::timeout(AT_MOST, idle).await;
        let ended = ended.expect("closed by the gateway").unwrap();
        // It may be closed before the command has ended that decides.
        let after = ended.saturating_duration_since(decided);
        println!("an idle connection ended {after:?} after its certificate was revoked");
        best = best.min(after);
        if best < PROMISED {
            break;
        }
    }
    assert!(best < PROMISED, "{best:?}");
    assert!(!others.is_finished(), "nobody else's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_that_comes_again_is_told_so_and_holds_no_idle_connection() {
    let (site, agent) = Agent::enrolled_before(|c| c.gateway.handshake_timeout = Span::seconds(3)).await;
    let (_, err, code) = site.run(&["certificate", "revoke", "--node-id", "node-0001"]);
    assert_eq!(code, 0, "{err}");
    eventually("the reason", async || {
        let body = agent.heartbeat_text(1, clock::now_ms());
        // One that was open when the revocation came is cut off, in the middle of a request if need be.
        let answer = agent.try_send_text(&agent.client(&site), &site, body).await;
        answer.is_ok_and(|r| r.status() == 401)
    })
    .await;
    // A node's connection may be silent for minutes; not this one.
    let mut idle = raw::tls(&site, Some((&agent.certificate, &agent.tls))).await;
    let mut byte = [0; 1];
    let ended = tokio::time::timeout(Duration::from_secs(30), idle.read(&mut byte)).await;
    assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_type_of_order_comes_with_its_parameters_and_one_that_nobody_takes_up_in_time_ends() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let digest = "0".repeat(64);
    let update = json!({ "version": "9.9.9", "url": "https://mirror.example/agent", "sha256": digest });
    let orders = [
        ("shutdown", json!({ "reason": "moving racks" })),
        ("update_agent", update),
        ("run_diagnostic", json!({ "name": "health" })),
    ];
    let mut ids = Vec::new();
    for (kind, parameters) in &orders {
        let text = parameters.to_string();
        let words = [
            "command",
            "send",
            "node-0001",
            "--type",
            kind,
            "--parameters",
            &text,
        ];
        let (out, err, code) = site.run(&[&words[..], &["--deadline", "2h"]].concat());
        assert_eq!(code, 0, "{err}");
        ids.push(out.trim().to_owned());
        // What another type takes is refused, and so is what no type takes.
        let words = ["command", "send", "node-0001", "--type", kind, "--parameters"];
        let (_, err, code) = site.run(&[&words[..], &[r#"{"shell":"rm -rf /"}"#]].concat());
        assert!(code == 1 && err.contains("parameters"), "{err}");
    }
    for chains in ["drain", "resume"] {
        let (_, err, code) = site.run(&["command", "send", "node-0001", "--type", chains]);
        assert!(code == 1 && err.contains(&format!("node {chains}")), "{err}");
    }
    let (late, err, code) = site.run(&[
        "command",
        "send",
        "node-0001",
        "--type",
        "shutdown",
        "--deadline",
        "1s",
    ]);
    assert_eq!(code, 0, "{err}");
    let late = late.trim();
    let key = agent.registered.as_ref().unwrap().task_public_key.unwrap();
    let (cluster_id, node_id) = (cluster(), agent.node.parse().unwrap());
    let scope = CommandScope {
        chain_id: CHAIN_ID,
        contract: &site.contract,
        cluster_id: &cluster_id,
        node_id: &node_id,
    };
    let mut sequence = 0;
    let mut told = Vec::new();
    eventually("all orders, and the late one gone", async || {
        sequence += 1;
        told = agent.beat(&client, &site, sequence).await.commands;
        told.len() == orders.len() && show(&site, late)["state"] == "expired"
    })
    .await;
    for ((kind, parameters), id) in orders.iter().zip(&ids) {
        let order = told.iter().find(|o| o.command_id == *id).unwrap();
        assert_eq!(order.command_type, *kind);
        let got: Value = serde_json::from_str(order.parameters.get()).unwrap();
        assert_eq!(&got, parameters);
        verify_command(order, &scope, &key, clock::now(), &ZebraVerifier).unwrap();
    }
    let acks: Vec<_> = ids
        .iter()
        .map(|id| json!({ "command_id": id, "status": "done" }))
        .collect();
    sequence += 1;
    let response = beat_with(&agent, &client, &site, sequence, json!(acks)).await;
    assert!(response.accepted && response.commands.is_empty(), "{response:?}");
    let history: Value = serde_json::from_str(&site.run(&["command", "list", "-o", "json"]).0).unwrap();
    let states = |state: &str| {
        history
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["state"] == state)
            .count()
    };
    assert_eq!((states("done"), states("expired")), (3, 1), "{history}");
}
