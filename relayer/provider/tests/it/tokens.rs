//! Tokens for many nodes: from a file, and one with which several join.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hpc_schema::code::Code;
use hpc_schema::gateway::{Problem, REGISTER_PATH, register_message};
use serde_json::{Value, json};
use virtengine_provider::db;
use virtengine_provider::home;
use virtengine_provider::identity::{Seed, TokenKey};

use crate::agent::{Agent, client, csr, der, post, problem, registered};
use crate::site::{CLUSTER, Site, eventually, run};

/// A registration with a join token: the request says which node it is.
pub(crate) fn join_body(agent: &Agent, token: &str) -> Value {
    let claims = token.split('.').nth(1).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert!(claims.get("sub").is_none() && claims["purpose"] == "join");
    let request = csr(&agent.tls);
    let message = register_message(claims["jti"].as_str().unwrap(), &der(&request));
    json!({
        "token": token,
        "node_id": agent.node,
        "public_key": agent.public(),
        "csr": request,
        "csr_signature": STANDARD.encode(agent.seed.sign(&message)),
        "probe_port": 9001,
    })
}

pub(crate) fn join_token(site: &Site, more: &[&str]) -> String {
    let (out, err, code) = site.run(&[&["node-token", "join", "--cluster-id", CLUSTER][..], more].concat());
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.lines().count(), 1);
    out.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tokens_are_made_from_a_file_all_or_none_and_each_serves_its_node() {
    let site = Site::start().await;
    let mut agents: Vec<Agent> = (0..1000).map(|i| Agent::new(&format!("node-{i:04}"))).collect();
    let mut lines: Vec<String> = agents
        .iter()
        .map(|a| format!("{},{}", a.node, a.public()))
        .collect();
    let file = site.home().join("nodes.csv");
    let create = [
        "node-token",
        "create",
        "--cluster-id",
        CLUSTER,
        "--from-file",
        file.to_str().unwrap(),
    ];
    lines.push("node-9999,no-key".into());
    std::fs::write(&file, lines.join("\n")).unwrap();
    let (out, err, code) = site.run(&create);
    assert!(code != 0 && out.is_empty() && err.contains("line 1001"), "{err}");
    let count = |site: &Site| {
        let list: Value = serde_json::from_str(&site.run(&["node-token", "list", "-o", "json"]).0).unwrap();
        list.as_array().unwrap().len()
    };
    assert_eq!(count(&site), 0);
    lines.pop();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let (out, err, code) = site.run(&create);
    assert_eq!(code, 0, "{err}");
    assert_eq!((out.lines().count(), count(&site)), (1000, 1000));
    let (node, token) = out.lines().last().unwrap().split_once(',').unwrap();
    let mut last = agents.pop().unwrap();
    assert_eq!(node, last.node);
    last.register(&site, token).await;
    assert!(last.beat(&last.client(&site), &site, 1).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_token_key_alone_makes_no_token_that_counts() {
    let site = Site::start().await;
    let (honest, mut thief) = (Agent::new("node-0001"), Agent::new("node-0001"));
    let token = site.token("node-0001", &honest.public(), "1h");
    let key = TokenKey::new(Seed::load(&site.home().join("keys/token.key")).unwrap());
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let mut claims: Value = serde_json::from_slice(&claims).unwrap();
    // For another key, under a number that is on record.
    claims["pubkey"] = thief.public().into();
    let forged = key.issue(&claims).unwrap();
    let open = client(&site.ca(), None);
    let body = thief.register_body(&forged, &thief.csr);
    let refused = post(&open, &site, REGISTER_PATH, &body).await;
    assert_eq!(problem(refused).await, (403, "token_invalid".into()));
    // Nor for another node, with its own key.
    thief.node = "node-0002".into();
    claims["sub"] = "node-0002".into();
    let body = thief.register_body(&key.issue(&claims).unwrap(), &thief.csr);
    let refused = post(&open, &site, REGISTER_PATH, &body).await;
    assert_eq!(problem(refused).await, (403, "token_invalid".into()));
    let mut honest = honest;
    honest.register(&site, &token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_serves_as_many_nodes_as_it_allows_and_takes_over_none() {
    let site = Site::start().await;
    let token = join_token(&site, &["--uses", "2"]);
    let open = client(&site.ca(), None);
    let mut one = Agent::new("node-0001");
    let mut two = Agent::new("node-0002");
    let body = join_body(&one, &token);
    let mut nameless = body.clone();
    nameless.as_object_mut().unwrap().remove("node_id");
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &nameless).await).await,
        (400, "malformed".into())
    );
    one.take(registered(&open, &site, &body).await);
    let again = post(&open, &site, REGISTER_PATH, &body).await;
    assert_eq!(
        again.status(),
        200,
        "the same request, the same answer, no second use"
    );
    // Another key under the name of a node that is there.
    let usurper = Agent::new("node-0001");
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &join_body(&usurper, &token)).await).await,
        (403, "node_exists".into())
    );
    let body = join_body(&two, &token);
    two.take(registered(&open, &site, &body).await);
    assert!(two.beat(&two.client(&site), &site, 1).await.accepted);
    let three = Agent::new("node-0003");
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &join_body(&three, &token)).await).await,
        (403, "token_used".into())
    );
    let list = site.run(&["node-token", "join-list"]).0;
    assert!(list.contains("2/2") && !list.contains(&token), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_counts_from_its_networks_only_until_revoked_and_waits_for_approval() {
    let site = Site::start().await;
    let open = client(&site.ca(), None);
    let elsewhere = join_token(
        &site,
        &["--uses", "5", "--range", "10.0.0.0/8", "--range", "2001:db8::/32"],
    );
    let mut agent = Agent::new("node-0001");
    let refused = post(&open, &site, REGISTER_PATH, &join_body(&agent, &elsewhere)).await;
    assert_eq!(refused.status(), 403);
    let refused: Problem = refused.json().await.unwrap();
    assert_eq!(refused.code, Code::NotAuthorized.as_str());
    for part in ["does not serve 127.0.0.1", "node-token join --range"] {
        assert!(refused.detail.contains(part), "{part}: {refused:?}");
    }
    let token = join_token(&site, &["--uses", "5", "--range", "127.0.0.0/8", "--approval"]);
    let body = join_body(&agent, &token);
    for _ in 0..5 {
        assert_eq!(post(&open, &site, REGISTER_PATH, &body).await.status(), 202);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let waiting: Value = serde_json::from_str(&site.run(&["node-token", "waiting", "-o", "json"]).0).unwrap();
    assert_eq!(waiting[0]["public_key"], agent.public());
    assert_eq!(site.run(&["node-token", "approve", "node-0001"]).2, 0);
    agent.take(registered(&open, &site, &body).await);
    assert_ne!(site.run(&["node-token", "approve", "node-0001"]).2, 0, "once");
    // Taken back: nobody else comes in by it, whoever waited included.
    let late = Agent::new("node-0002");
    let waits = join_body(&late, &token);
    assert_eq!(post(&open, &site, REGISTER_PATH, &waits).await.status(), 202);
    let list: Value = serde_json::from_str(&site.run(&["node-token", "join-list", "-o", "json"]).0).unwrap();
    let ours = list
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["approval"] == true)
        .unwrap();
    assert_eq!(
        site.run(&["node-token", "revoke", ours["jti"].as_str().unwrap()])
            .2,
        0
    );
    assert_eq!(
        problem(post(&open, &site, REGISTER_PATH, &waits).await).await,
        (403, "token_invalid".into())
    );
    assert_eq!(site.run(&["node-token", "waiting", "-o", "json"]).0.trim(), "[]");
    assert!(
        agent.beat(&agent.client(&site), &site, 1).await.accepted,
        "who is in stays in"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_key_under_a_waiting_nodes_name_is_told_apart_and_refused_for_good() {
    let site = Site::start().await;
    let open = client(&site.ca(), None);
    let token = join_token(&site, &["--uses", "5", "--approval"]);
    let (mut node, rival) = (Agent::new("node-0001"), Agent::new("node-0001"));
    let (body, rivals) = (join_body(&node, &token), join_body(&rival, &token));
    for body in [&rivals, &body] {
        assert_eq!(post(&open, &site, REGISTER_PATH, body).await.status(), 202);
    }
    // Nobody is guessed: both keys are named, and how to say which.
    for verb in ["approve", "reject"] {
        let (_, err, code) = site.run(&["node-token", verb, "node-0001"]);
        assert_eq!(code, 1, "{err}");
        for part in [
            &*node.public(),
            &*rival.public(),
            "--public-key",
            "node-token reject",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
    let (rivals_key, stranger) = (rival.public(), Agent::new("node-0001").public());
    let named = |verb: &str, key: &str| site.run(&["node-token", verb, "node-0001", "--public-key", key]);
    let (_, err, code) = named("approve", &stranger);
    assert!(
        code == 1 && err.contains("no registration of node-0001 waits"),
        "{err}"
    );
    let (out, err, code) = named("reject", &rivals_key);
    assert!(code == 0 && out.contains(&rivals_key), "{out}{err}");
    // However often it asks, it is told why and what to do, and waits no more.
    for _ in 0..2 {
        let refused = post(&open, &site, REGISTER_PATH, &rivals).await;
        assert_eq!(refused.status(), 403);
        let refused: Value = refused.json().await.unwrap();
        assert_eq!(refused["code"], "token_invalid");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("the operator has refused this key"), "{detail}");
        // Another join token would not help.
        assert!(detail.ends_with("node-token create"), "{detail}");
    }
    let (_, err, code) = named("approve", &rivals_key);
    assert!(code == 1 && err.contains("token_invalid"), "{err}");
    // Nor does another join token let it in, even one that asks nobody.
    let another = join_token(&site, &["--uses", "5"]);
    let refused = post(&open, &site, REGISTER_PATH, &join_body(&rival, &another)).await;
    assert_eq!(refused.status(), 403);
    let refused: Problem = refused.json().await.unwrap();
    assert_eq!(refused.code, Code::TokenInvalid.as_str());
    assert!(
        refused.detail.contains("the operator has refused this key"),
        "{refused:?}"
    );
    // The other one is alone now, and needs no key named.
    let waiting: Value = serde_json::from_str(&site.run(&["node-token", "waiting", "-o", "json"]).0).unwrap();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "{waiting}");
    let (_, err, code) = site.run(&["node-token", "approve", "node-0001"]);
    assert_eq!(code, 0, "{err}");
    node.take(registered(&open, &site, &body).await);
    assert!(node.beat(&node.client(&site), &site, 1).await.accepted);
    // Of two that wait the named one is let in, whoever came first; one refused by mistake has a token of its own.
    let (other, mut meant) = (Agent::new("node-0002"), Agent::new("node-0002"));
    let meants = join_body(&meant, &token);
    for body in [&join_body(&other, &token), &meants] {
        assert_eq!(post(&open, &site, REGISTER_PATH, body).await.status(), 202);
    }
    let (key, others) = (meant.public(), other.public());
    let approve = ["node-token", "approve", "node-0002", "--public-key", &key];
    assert_eq!(site.run(&approve).2, 0);
    meant.take(registered(&open, &site, &meants).await);
    assert_eq!(site.run(&["node-token", "reject", "node-0002"]).2, 0);
    let mut moved = other;
    moved.node = "node-0003".into();
    let own = site.token("node-0003", &others, "1h");
    moved.register(&site, &own).await;
    let log = site.run(&["audit", "export"]).0;
    let rows = log.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let rejects: Vec<Value> = rows.filter(|r| r["action"] == "registration.reject").collect();
    let results: Vec<&str> = rejects.iter().map(|r| r["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["refused", "done", "done"]);
    assert!(rejects[1].to_string().contains(&rivals_key), "{}", rejects[1]);
    assert_eq!(rejects[1]["target"], format!("node {CLUSTER}/node-0001"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_comes_after_the_tokens_end_registers_nobody() {
    let site = Site::start().await;
    let open = client(&site.ca(), None);
    let token = join_token(&site, &["--uses", "5", "--approval"]);
    let (late, mut early) = (Agent::new("node-0001"), Agent::new("node-0002"));
    let bodies = [join_body(&late, &token), join_body(&early, &token)];
    for body in &bodies {
        assert_eq!(post(&open, &site, REGISTER_PATH, body).await.status(), 202);
    }
    // The one node's use of it is over.
    let store = site.store().await;
    let mut tx = store.begin().await.unwrap();
    db::query("UPDATE token SET expires_at_s = 1 WHERE node_id = 'node-0001'")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let waiting: Value = serde_json::from_str(&site.run(&["node-token", "waiting", "-o", "json"]).0).unwrap();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "{waiting}");
    assert_eq!(waiting[0]["node_id"], "node-0002");
    for verb in ["approve", "reject"] {
        let (_, err, code) = site.run(&["node-token", verb, "node-0001"]);
        assert_eq!(code, 1, "{err}");
        for part in ["token_expired", &*late.public(), "node-token create"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
    assert_eq!(site.run(&["node-token", "approve", "node-0002"]).2, 0);
    early.take(registered(&open, &site, &bodies[1]).await);
    let row = db::query("SELECT state, held FROM registration WHERE node_id = 'node-0001'");
    let row = row.fetch_one(store.reader()).await.unwrap();
    let (state, held): (String, i64) = (row.try_get("state").unwrap(), row.try_get("held").unwrap());
    assert_eq!((&*state, held), ("queued", 1));
    // A token that was taken back is none either, and says so.
    let third = Agent::new("node-0003");
    let waits = join_body(&third, &token);
    assert_eq!(post(&open, &site, REGISTER_PATH, &waits).await.status(), 202);
    let list: Value = serde_json::from_str(&site.run(&["node-token", "join-list", "-o", "json"]).0).unwrap();
    let jti = list[0]["jti"].as_str().unwrap();
    assert_eq!(site.run(&["node-token", "revoke", jti]).2, 0);
    let (_, err, code) = site.run(&["node-token", "approve", "node-0003"]);
    assert!(
        code == 1 && err.contains("token_invalid") && err.contains("revoked"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_that_has_expired_registers_nobody_whatever_end_is_signed_into_it() {
    let site = Site::start().await;
    let open = client(&site.ca(), None);
    let token = join_token(&site, &["--uses", "2", "--expires", "1s"]);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    // Whoever has the token key may sign a later end: the one on record counts.
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let mut claims: Value = serde_json::from_slice(&claims).unwrap();
    let end = claims["exp"].as_u64().unwrap();
    claims["exp"] = json!(end + 3600);
    let key = TokenKey::new(Seed::load(&site.home().join("keys/token.key")).unwrap());
    let longer = key.issue(&claims).unwrap();
    let mut agent = Agent::new("node-0001");
    for shown in [&token, &longer] {
        let refused = post(&open, &site, REGISTER_PATH, &join_body(&agent, shown)).await;
        assert_eq!(refused.status(), 403);
        let refused: Problem = refused.json().await.unwrap();
        assert_eq!(refused.code, Code::TokenExpired.as_str(), "{refused:?}");
        assert!(
            refused.detail.ends_with(Code::TokenExpired.remedy()),
            "{refused:?}"
        );
    }
    let list: Value = serde_json::from_str(&site.run(&["node-token", "join-list", "-o", "json"]).0).unwrap();
    assert_eq!(
        (&list[0]["state"], &list[0]["used"]),
        (&json!("expired"), &json!(0))
    );
    // As the refusal says.
    let next = join_token(&site, &["--uses", "2"]);
    let body = join_body(&agent, &next);
    agent.take(registered(&open, &site, &body).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_is_followed_by_another_without_an_outage() {
    let site = Site::start().await;
    let open = client(&site.ca(), None);
    let first = join_token(&site, &["--uses", "9"]);
    let mut one = Agent::new("node-0001");
    let body = join_body(&one, &first);
    one.take(registered(&open, &site, &body).await);
    let nodes = one.client(&site);
    assert!(one.beat(&nodes, &site, 1).await.accepted);
    // Both count until the former is revoked.
    let second = join_token(&site, &["--uses", "9"]);
    let (mut two, mut three) = (Agent::new("node-0002"), Agent::new("node-0003"));
    for (agent, token) in [(&mut two, &first), (&mut three, &second)] {
        let body = join_body(agent, token);
        agent.take(registered(&open, &site, &body).await);
    }
    let claims = URL_SAFE_NO_PAD.decode(first.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let (_, err, code) = site.run(&["node-token", "revoke", claims["jti"].as_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    let late = Agent::new("node-0004");
    let refused = post(&open, &site, REGISTER_PATH, &join_body(&late, &first)).await;
    assert_eq!(problem(refused).await, (403, "token_invalid".into()));
    let mut four = late;
    let body = join_body(&four, &second);
    four.take(registered(&open, &site, &body).await);
    // Whoever came in by either goes on, on the connection that it has.
    assert!(one.beat(&nodes, &site, 2).await.accepted);
    for agent in [&two, &three, &four] {
        assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_key_is_replaced_while_the_gateway_runs_and_the_former_ones_tokens_count_until_its_end() {
    let site = Site::start().await;
    let agents = ["node-0001", "node-0002", "node-0003"].map(Agent::new);
    let [mut before, mut between, mut late] = agents;
    let first = site.token(&before.node, &before.public(), "1h");
    let late_too = site.token(&late.node, &late.public(), "1h");
    let keys = site.home().join("keys");
    let public = |file: &str| Seed::load(&keys.join(file)).unwrap().public().to_base64();
    let old = public("token.key");
    let (_, err, code) = site.run(&["keys", "rotate-token", "--overlap", "721h"]);
    assert!(code != 0 && err.contains("720h"), "{err}");
    let other = home::try_lock(&keys.join("token.lock")).unwrap();
    let (_, err, code) = site.run(&["keys", "rotate-token"]);
    assert!(code != 0 && err.contains("another call"), "{err}");
    drop(other);
    // Broken off three times, it goes on with the key that it has drawn.
    let mut drawn = None;
    let broken_off = |step: &str| {
        let mut env = site.env();
        env.push(("VIRTENGINE_FAULT".into(), step.into()));
        let (_, err, code) = run(&site.home(), &env, &["keys", "rotate-token"]);
        assert_eq!(code, -1, "{step}: {err}");
        public("token.key.next")
    };
    for step in ["token_key.drawn", "token_key.recorded"] {
        let next = broken_off(step);
        assert_eq!(*drawn.get_or_insert_with(|| next.clone()), next, "{step}");
        assert_eq!(public("token.key"), old, "{step}");
    }
    let half = site.token(&between.node, &between.public(), "1h");
    assert_eq!(Some(broken_off("token_key.promoted")), drawn);
    assert_eq!(Some(public("token.key")), drawn);
    let rotate = |more: &[&str]| -> Value {
        let (out, err, code) = site.run(&[&["keys", "rotate-token", "-o", "json"][..], more].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    };
    let done = rotate(&[]);
    assert_eq!((&done["old_key"], &done["resumed"]), (&json!(old), &json!(true)));
    assert_eq!(Some(public("token.key")), drawn);
    assert!(!keys.join("token.key.next").exists());
    // What the new key signs is taken at once, and what the former one signed still is.
    let mut after = Agent::new("node-0004");
    after
        .register(&site, &site.token("node-0004", &after.public(), "1h"))
        .await;
    before.register(&site, &first).await;
    between.register(&site, &half).await;
    assert!(before.beat(&before.client(&site), &site, 1).await.accepted);
    // One that has leaked counts no more at once, nor does what it signed; a token that is not used yet is made anew.
    let third = site.token(&late.node, &late.public(), "1h");
    // Whatever else a reload would refuse, such as a certificate that is half written.
    let certificate = site.home().join("gateway/server.crt");
    let good = fs::read(&certificate).unwrap();
    fs::write(&certificate, &good[..good.len() / 4]).unwrap();
    let done = rotate(&["--overlap", "0s"]);
    assert_eq!(
        (done["old_key"].as_str(), done.get("resumed")),
        (drawn.as_deref(), None)
    );
    let open = client(&site.ca(), None);
    let body = late.register_body(&third, &late.csr);
    eventually("a token of the key that has leaked is refused", async || {
        let answer = post(&open, &site, REGISTER_PATH, &body).await;
        answer.status() == 403 && problem(answer).await == (403, "token_invalid".into())
    })
    .await;
    assert!(site.ops("/readyz").await.1.contains("reload_failed"));
    fs::write(&certificate, &good).unwrap();
    // The one before it has its own end.
    late.register(&site, &late_too).await;
    let log = site.run(&["audit", "export"]).0;
    let rows = log.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let rows: Vec<Value> = rows.filter(|r| r["action"] == "token_key.rotate").collect();
    let results: Vec<&str> = rows.iter().map(|r| r["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["refused", "refused", "done", "done", "done", "done"]);
    assert!(rows[2].to_string().contains(&old), "{}", rows[2]);
}
