use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{
    CertificateResponse, ChallengeResponse, Problem, REGISTER_PATH, RegisterResponse, SEQUENCE_BLOCK,
    certificate_path, challenge_path, recover_message, recover_path,
};
use hpc_schema::node::NodeState;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::task::{result_path, wait_path};
use hpc_schema::time::Rfc3339;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
use serde_json::{Value, json};
use virtengine_provider::clock;
use virtengine_provider::config::Span;

use crate::agent::{Agent, client, csr, der, post, problem, registered};
use crate::site::{Site, cluster, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_registers_reports_and_stands_active_on_chain() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-hpc1-compute-042").await;
    let registered = agent.registered.as_ref().unwrap();
    assert_eq!(registered.last_sequence, 0);
    assert_eq!(registered.contract, site.contract);
    assert_eq!(registered.ca, site.ca());
    assert!(registered.task_public_key.is_some());
    assert_eq!(site.node(&agent.node).await.state, NodeState::Pending);
    let response = agent.beat(&agent.client(&site), &site, 1).await;
    assert!(response.accepted && response.errors.is_empty(), "{response:?}");
    assert_eq!(response.sequence_ack, 1);
    site.wait_sequence(&agent.node, 1).await;
    let node = site.node(&agent.node).await;
    assert_eq!(node.state, NodeState::Active);
    assert_eq!(
        (
            node.resources.cpu_cores,
            node.resources.memory_gb,
            node.resources.gpus
        ),
        (32, 128, 2)
    );
    assert_eq!(
        node.totals.unwrap().cpu_cores,
        64,
        "the second section travelled with the report"
    );
    assert_eq!(node.hostname.as_deref(), Some("compute-042"));
    // The agent gets to know that its report is settled.
    let client = agent.client(&site);
    let mut sequence = 1;
    eventually("settled_sequence", async || {
        sequence += 1;
        agent
            .beat(&client, &site, sequence)
            .await
            .chain
            .unwrap()
            .settled_sequence
            >= 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_gets_the_same_answer_and_another_one_finds_the_token_used() {
    let site = Site::start().await;
    let mut agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    agent.register(&site, &token).await;
    let open = client(&site.ca(), None);
    let body = agent.register_body(&token, &csr(&agent.tls));
    // ECDSA signatures differ each time, so this is another request for the same key.
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &body).await).await,
        (403, "token_used".into())
    );
    let mut twin = Agent::new("node-0002");
    let token = site.token("node-0002", &twin.public(), "1h");
    let body = twin.register_body(&token, &csr(&twin.tls));
    let mut answers = Vec::new();
    eventually("two answers", async || {
        let response = post(&open, &site, REGISTER_PATH, &body).await;
        if response.status() == 200 {
            answers.push(response.json::<RegisterResponse>().await.unwrap());
        }
        answers.len() == 2
    })
    .await;
    assert_eq!(answers[0], answers[1]);
    twin.take(answers.remove(0));
    let list = site.run(&["node-token", "list", "-o", "json"]).0;
    assert_eq!(list.matches("\"used\"").count(), 2, "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_do_not_count_are_refused_with_their_codes() {
    let site = Site::start().await;
    let agent = Agent::new("node-0001");
    let open = client(&site.ca(), None);
    let try_with = async |token: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let mut body = agent.register_body(token, &csr(&agent.tls));
        change(&mut body);
        problem(post(&open, &site, REGISTER_PATH, &body).await).await
    };
    let keep = |_: &mut serde_json::Value| {};
    let refused = |code: &str| (403, code.to_owned());
    let token = site.token("node-0001", &agent.public(), "1s");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(try_with(&token, &keep).await, refused("token_expired"));

    let token = site.token("node-0001", &agent.public(), "1h");
    let list: serde_json::Value =
        serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
    let open_one = list
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["state"] == "open")
        .unwrap();
    assert_eq!(
        site.run(&["node-token", "revoke", open_one["jti"].as_str().unwrap()])
            .2,
        0
    );
    assert_eq!(try_with(&token, &keep).await, refused("token_invalid"));

    let token = site.token("node-0001", &agent.public(), "1h");
    let other = Agent::new("node-0001");
    assert_eq!(
        try_with(&token, &|b| b["public_key"] = json!(other.public())).await,
        refused("key_mismatch")
    );
    let forged = STANDARD.encode(other.seed.sign(b"x"));
    assert_eq!(
        try_with(&token, &|b| b["csr_signature"] = json!(forged)).await,
        refused("signature_invalid")
    );
    assert_eq!(
        try_with(&token, &|b| b["hostname"] = json!("a\"b")).await,
        (400, "invalid_field".into())
    );
    for nobodys in ["0.0.0.0", "ff02::1", "fe80::7", "255.255.255.255"] {
        assert_eq!(
            try_with(&token, &|b| b["probe_address"] = json!(nobodys)).await,
            (400, "invalid_field".into())
        );
    }
    assert_eq!(
        try_with(&token, &|b| b["csr"] = json!("x")).await,
        (400, "malformed".into())
    );
    let mut changed = token.clone();
    changed.pop();
    assert_eq!(
        try_with(&token, &|b| b["token"] = json!(changed)).await,
        refused("token_invalid")
    );
    // Nothing of this has used the token up.
    let mut agent = agent;
    agent.register(&site, &token).await;
}

async fn refused(response: reqwest::Response) -> Problem {
    response.json().await.unwrap()
}

// openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -sha512 -nodes -subj /CN=x
const SIGNED_WITH_SHA512: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBBDCBiwIBADAMMQowCAYDVQQDDAF4MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE
KWy+DH7gL3U9KFBlN4HEFcuNdGDsV77HtYEkqiKfdZh7RMS4YOcw6l17WexVDMCd
u+qc1El2sgAZzm94M4OIwrZ7hytnwhUZZ8EIxEAfqgtXDiUjk91DMa5V8asNX2KW
oAAwCgYIKoZIzj0EAwQDaAAwZQIxALkfZbZHd5savA00azvUQ9RtH6Br9meSPdfK
JEns4q40LaXBZy34o8ejLHFUQKErawIwCjy6JP1fnIqc5VQYsfNJ+5V8fxeBdEnH
OTJY4e6ohw71Qy+681sEibLJqCAPlfnc
-----END CERTIFICATE REQUEST-----
";

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_registration_names_the_member_at_fault_and_leaves_the_token_to_be_used() {
    let site = Site::start().await;
    let mut agent = Agent::new("node-0001");
    let token = site.token("node-0001", &agent.public(), "1h");
    let open = client(&site.ca(), None);
    for (member, value, status, code) in [
        ("probe_port", json!(0), 400, "invalid_field"),
        ("agent_version", json!("v".repeat(33)), 400, "invalid_field"),
        ("agent_version", json!("0.1.0-ä"), 400, "invalid_field"),
        ("node_id", json!("node-0002"), 403, "identity_mismatch"),
        ("public_key", json!("x"), 400, "malformed"),
        ("probe_address", json!("nowhere"), 400, "malformed"),
        ("csr", json!("x"), 400, "malformed"),
        ("csr", json!(SIGNED_WITH_SHA512), 400, "malformed"),
        ("token", json!("x"), 403, "token_invalid"),
    ] {
        let mut body = agent.register_body(&token, &agent.csr);
        body[member] = value;
        let problem = refused(post(&open, &site, REGISTER_PATH, &body).await).await;
        assert_eq!(
            (problem.status, problem.code.as_str(), problem.field.as_deref()),
            (status, code, Some(member)),
            "{problem:?}"
        );
    }
    // The token's own node, and what says nothing; with a key of the other curve.
    agent.tls = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    agent.csr = csr(&agent.tls);
    let mut body = agent.register_body(&token, &agent.csr);
    body["node_id"] = json!("node-0001");
    body["agent_version"] = json!("");
    agent.take(registered(&open, &site, &body).await);
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    let other = agent.register_body(&token, &csr(&agent.tls));
    let problem = refused(post(&open, &site, REGISTER_PATH, &other).await).await;
    assert_eq!(
        (problem.code.as_str(), problem.field.as_deref()),
        ("token_used", Some("token"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chain_refuses_is_told_and_may_be_tried_again() {
    let site = Site::start().await;
    let first = Agent::enrolled(&site, "node-0001").await;
    let second = Agent::new("node-0002");
    let token = site.token("node-0002", &second.public(), "1h");
    let open = client(&site.ca(), None);
    let mut body = second.register_body(&token, &csr(&second.tls));
    // The machine of the first node.
    body["hardware_fingerprint"] = json!(hex::encode(first.seed.public().as_bytes()));
    let mut refusal = (202, String::new());
    eventually("the refusal", async || {
        let response = post(&open, &site, REGISTER_PATH, &body).await;
        if response.status() != 202 {
            refusal = problem(response).await;
        }
        refusal.0 != 202
    })
    .await;
    assert_eq!(refusal, (403, "duplicate_hardware".into()));
    let again = refused(post(&open, &site, REGISTER_PATH, &body).await).await;
    assert_eq!(again.field.as_deref(), Some("hardware_fingerprint"));
    // Another request may use the token, because this one came to nothing.
    let mut second = second;
    second.register(&site, &token).await;
}

/// A request for a certificate that only the agent's key stands for.
async fn by_key(agent: &Agent, site: &Site, tls: &KeyPair) -> Value {
    let node = agent.node.parse().unwrap();
    let open = client(&site.ca(), None);
    let challenge: ChallengeResponse = post(&open, site, &challenge_path(&node), &json!({}))
        .await
        .json()
        .await
        .unwrap();
    let request = csr(tls);
    let bytes: [u8; 32] = STANDARD.decode(&challenge.challenge).unwrap().try_into().unwrap();
    let signature = STANDARD.encode(agent.seed.sign(&recover_message(&bytes, &der(&request))));
    json!({ "challenge": challenge.challenge, "csr": request, "signature": signature })
}

/// The last number that a node which has lost its disk is told.
async fn told(agent: &Agent, site: &Site) -> u32 {
    let body = by_key(agent, site, &agent.tls).await;
    let path = recover_path(&agent.node.parse().unwrap());
    let answer = post(&client(&site.ca(), None), site, &path, &body).await;
    assert_eq!(answer.status(), 200);
    let answer: CertificateResponse = answer.json().await.unwrap();
    answer.registration.unwrap().last_sequence
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_loses_its_disk_again_and_again_is_never_told_a_number_of_a_life_before() {
    let mut site = Site::start().await;
    let (agent, silent) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 7).await.accepted);
    // It goes on a block above what it is told; of the second life nothing arrives.
    assert_eq!(told(&agent, &site).await, 7);
    assert_eq!(told(&agent, &site).await, 7 + SEQUENCE_BLOCK);
    // Of this one nothing ever arrived.
    assert_eq!(told(&silent, &site).await, 0);
    site.stop_daemon().await;
    site.start_daemon().await;
    assert_eq!(told(&agent, &site).await, 7 + 2 * SEQUENCE_BLOCK);
    assert_eq!(told(&silent, &site).await, SEQUENCE_BLOCK);
    // A number of the third life, and one that is above all that was given out.
    assert!(agent.beat(&client, &site, 8 + 3 * SEQUENCE_BLOCK).await.accepted);
    assert_eq!(told(&agent, &site).await, 8 + 3 * SEQUENCE_BLOCK);
    assert!(agent.beat(&client, &site, 1000).await.accepted);
    assert_eq!(told(&agent, &site).await, 1000);
    // What was told is no number that was received.
    let shown = site.run(&["node", "show", "node-0002", "-o", "json"]).0;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(
        shown["last_received"] == 0 && shown["received_at"].is_null(),
        "{shown}"
    );
    assert!(silent.beat(&silent.client(&site), &site, 1).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_has_lost_its_store_tells_no_node_that_it_is_unknown_before_it_has_read_the_chain() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client_of = agent.client(&site);
    assert!(agent.beat(&client_of, &site, 1).await.accepted);
    site.stop_daemon().await;
    std::fs::remove_dir_all(site.home().join("store")).unwrap();
    let mut config = site.config();
    config.chain.clusters = vec![cluster()];
    // It takes requests and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let chain = std::mem::replace(
        &mut config.chain.rpc,
        vec![format!("http://{}", silent.local_addr().unwrap())],
    );
    config.chain.timeout = Span::seconds(3);
    site.start_with(config.clone()).await;
    let (status, body) = site.ops("/readyz").await;
    assert!(status == 503 && body.contains("\"starting\""), "{body}");
    let text = agent.heartbeat_text(2, clock::now_ms());
    let answer = agent.send_text(&client_of, &site, text).await;
    assert_eq!(answer.headers()["retry-after"], "5");
    assert_eq!(problem(answer).await, (503, "unavailable".to_owned()));
    let node = agent.node.parse().unwrap();
    let open = client(&site.ca(), None);
    let body = by_key(&agent, &site, &agent.tls).await;
    let answer = post(&open, &site, &recover_path(&node), &body).await;
    assert_eq!(problem(answer).await, (503, "unavailable".to_owned()));
    let answer = post(
        &client_of,
        &site,
        &certificate_path(&node),
        &json!({ "csr": csr(&agent.tls) }),
    )
    .await;
    assert_eq!(problem(answer).await, (503, "unavailable".to_owned()));
    // Nor is what it has done for nothing: it asks for tasks, and brings results, later.
    let url = format!("{}{}?wait_seconds=1", site.gateway(), wait_path(&node));
    let answer = client_of.get(url).send().await.unwrap();
    assert_eq!(problem(answer).await, (503, "unavailable".to_owned()));
    let task = "0".repeat(32).parse().unwrap();
    let at = Rfc3339::from_unix(clock::now().0, 0).unwrap();
    let result = json!({ "task_hash": "0".repeat(64), "outcome": "completed", "result": {}, "started_at": at, "finished_at": at,
        "signature": STANDARD.encode([0; 64]) });
    let answer = post(&client_of, &site, &result_path(&node, &task), &result).await;
    assert_eq!(problem(answer).await, (503, "unavailable".to_owned()));
    // What has failed says what is wrong.
    eventually("an end of the start", async || {
        let (status, body) = site.ops("/readyz").await;
        assert_eq!(status, 503, "{body}");
        body.contains("\"not_synced\"") && !body.contains("\"starting\"")
    })
    .await;
    site.stop_daemon().await;
    config.chain.rpc = chain;
    site.start_with(config).await;
    eventually("readiness", async || site.ops("/readyz").await.0 == 200).await;
    // Ready: all that are on the chain are known, and whoever is not is told so.
    assert!(agent.beat(&client_of, &site, 3).await.accepted);
    let mut stranger = Agent::new("node-0009");
    stranger.certificate.clone_from(&agent.certificate);
    let body = by_key(&stranger, &site, &stranger.tls).await;
    let answer = post(
        &open,
        &site,
        &recover_path(&stranger.node.parse().unwrap()),
        &body,
    )
    .await;
    assert_eq!(problem(answer).await, (404, "unknown_node".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_whose_certificate_has_ended_unused_is_answered_with_another_unless_it_was_revoked() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.certificate_lifetime = Span::seconds(6);
    site.start_with(config).await;
    let open = client(&site.ca(), None);
    let (mut late, robbed) = (Agent::new("node-0001"), Agent::new("node-0002"));
    let request = |agent: &Agent| {
        let token = site.token(&agent.node, &agent.public(), "1h");
        agent.register_body(&token, &csr(&agent.tls))
    };
    let (of_late, of_robbed) = (request(&late), request(&robbed));
    let first = registered(&open, &site, &of_late).await;
    registered(&open, &site, &of_robbed).await;
    let revoke = ["certificate", "revoke", "--node-id", "node-0002"];
    assert_eq!(site.run(&revoke).2, 0);
    let mut second = None;
    eventually("another certificate", async || {
        let answer = registered(&open, &site, &of_late).await;
        if answer.certificate != first.certificate {
            second = Some(answer);
        }
        second.is_some()
    })
    .await;
    let second = second.unwrap();
    assert_eq!(second.epoch, first.epoch);
    late.take(second);
    assert!(late.beat(&late.client(&site), &site, 1).await.accepted);
    let mut said = None;
    eventually("a refusal", async || {
        let answer = post(&open, &site, REGISTER_PATH, &of_robbed).await;
        if answer.status() != 200 {
            said = Some(problem(answer).await);
        }
        said.is_some()
    })
    .await;
    assert_eq!(said.unwrap(), (401, "identity_mismatch".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_over_mutual_tls_and_recovered_by_the_agents_key() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.certificate_lifetime = Span::seconds(6);
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let node = agent.node.parse().unwrap();
    let mutual = agent.client(&site);
    let fresh = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let renewed: CertificateResponse = post(
        &mutual,
        &site,
        &certificate_path(&node),
        &json!({ "csr": csr(&fresh) }),
    )
    .await
    .json()
    .await
    .unwrap();
    let with_renewed = client(&site.ca(), Some((&renewed.certificate, &fresh)));
    assert!(agent.beat(&with_renewed, &site, 1).await.accepted);

    // An open connection does not outlive its certificate, and a new one is not made with it.
    tokio::time::sleep(std::time::Duration::from_millis(7500)).await;
    let late = agent.send_text(
        &with_renewed,
        &site,
        agent.heartbeat_text(2, virtengine_provider::clock::now_ms()),
    );
    assert_eq!(problem(late.await).await, (401, "identity_mismatch".into()));
    let again = client(&site.ca(), Some((&renewed.certificate, &fresh)));
    let url = format!("{}{}", site.gateway(), certificate_path(&node));
    assert!(
        again.post(url).body("{}").send().await.is_err(),
        "refused in the handshake"
    );

    let open = client(&site.ca(), None);
    let body = by_key(&agent, &site, &fresh).await;
    let recovered = post(&open, &site, &recover_path(&node), &body).await;
    assert_eq!(recovered.status(), 200);
    let recovered: CertificateResponse = recovered.json().await.unwrap();
    // What a node without a disk needs beside it: the same as at its registration, and how far its count is.
    let (known, first) = (
        recovered.registration.unwrap(),
        agent.registered.as_ref().unwrap(),
    );
    assert_eq!(
        (
            &known.cluster_id,
            &known.node_id,
            &known.chain_id,
            &known.contract,
            known.epoch
        ),
        (
            &first.cluster_id,
            &first.node_id,
            &first.chain_id,
            &first.contract,
            first.epoch
        )
    );
    assert_eq!(
        (
            &known.params,
            known.job_ids,
            known.task_public_key,
            known.last_sequence
        ),
        (&first.params, first.job_ids, first.task_public_key, 1)
    );
    assert_eq!(
        known.hardware_fingerprint.as_deref(),
        Some(hex::encode(agent.seed.public().as_bytes()).as_str())
    );
    assert_eq!(renewed.registration, None, "who has its disk knows");
    let back = client(&site.ca(), Some((&recovered.certificate, &fresh)));
    assert!(agent.beat(&back, &site, 3).await.accepted);
    // Once is once.
    let replay = post(&open, &site, &recover_path(&node), &body).await;
    let replay = refused(replay).await;
    assert_eq!((replay.status, replay.code.as_str()), (403, "nonce_reused"));
    assert_eq!(replay.field.as_deref(), Some("challenge"));
    let remedy = replay.detail.split("; ").last().unwrap();
    assert!(remedy.ends_with("…/certificate/challenge"), "{replay:?}");
    // Another key is no answer.
    let challenge: ChallengeResponse = post(&open, &site, &challenge_path(&node), &json!({}))
        .await
        .json()
        .await
        .unwrap();
    let body = json!({ "challenge": challenge.challenge, "csr": csr(&fresh), "signature": STANDARD.encode([7; 64]) });
    assert_eq!(
        problem(post(&open, &site, &recover_path(&node), &body).await).await,
        (403, "signature_invalid".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_registration_begins_a_new_epoch_and_turns_old_reports_away() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    assert!(agent.beat(&agent.client(&site), &site, 7).await.accepted);
    site.wait_sequence(&agent.node, 7).await;
    site.owner_sends(&ExecuteMsg::DeregisterNode {
        cluster_id: Some(cluster()),
        node_id: agent.node.parse().unwrap(),
    })
    .await;
    eventually("node_deregistered", async || {
        let answer = agent.beat(&agent.client(&site), &site, 8).await;
        !answer.accepted && answer.errors[0].code == "node_deregistered"
    })
    .await;
    let again = Agent::enrolled(&site, "node-0001").await;
    let (old, new) = (
        agent.registered.as_ref().unwrap(),
        again.registered.as_ref().unwrap(),
    );
    assert!(new.epoch > old.epoch);
    assert_eq!(new.last_sequence, 0, "of this epoch nothing was seen");
    assert!(
        again.beat(&again.client(&site), &site, 1).await.accepted,
        "the count begins anew"
    );
    // The certificate of the registration before counts no more, whatever it is used for.
    let body = agent.heartbeat_text(9, virtengine_provider::clock::now_ms());
    let refused = agent.send_text(&agent.client(&site), &site, body).await;
    assert_eq!(problem(refused).await, (401, "identity_mismatch".into()));
    let path = certificate_path(&agent.node.parse().unwrap());
    let renewal = json!({ "csr": csr(&agent.tls) });
    let renewed = post(&agent.client(&site), &site, &path, &renewal).await;
    assert_eq!(problem(renewed).await, (401, "identity_mismatch".into()));
    // Old reports with the new certificate are of another epoch.
    let body = agent.heartbeat_text(10, virtengine_provider::clock::now_ms());
    let refused = crate::agent::answer(again.send_text(&again.client(&site), &site, body).await).await;
    assert_eq!(refused.errors[0].code, "signature_invalid");
    site.wait_sequence(&again.node, 1).await;
}
