//! Operators' acts while the chain does not do them.

use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::proxy::{Fault, check_tx};
use crate::scene::Scene;
use crate::site::run;

/// More than there are places for what waits.
const DRAINS: usize = 40;

#[tokio::test]
async fn acts_that_wait_for_the_chain_keep_no_other_from_being_done() {
    let scene = Scene::start().await;
    let args = ["admin-token", "create", "--name", "o", "--role", "operator"];
    let (token, err, code) = run(&scene.site.home(), &scene.site.env(), &args);
    assert_eq!(code, 0, "{err}");
    let addr = scene.site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let (http, token) = (Client::new(), token.trim().to_owned());
    let with = |request: RequestBuilder| request.bearer_auth(&token).timeout(Duration::from_secs(20));
    let url = |path: &str| format!("http://{addr}/api/v1/admin{path}");
    // Taken, and never in a block.
    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::Instead(check_tx(0, ""))));
    let mut drains = JoinSet::new();
    for _ in 0..DRAINS {
        let request = http.post(url("/nodes/node-0000/drain")).bearer_auth(&token);
        drains.spawn(request.json(&json!({ "reason": "x" })).send());
    }
    // Those that found no place are told at once, and when to come again.
    let mut refused = 0;
    while refused < DRAINS - 8 {
        let answer = drains.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
        let said: Value = answer.json().await.unwrap();
        assert_eq!(said["code"], "unavailable");
        assert!(
            said["detail"].as_str().unwrap().contains("wait for the chain"),
            "{said}"
        );
        refused += 1;
    }
    assert_eq!(drains.len(), 8);
    // Meanwhile the rest goes on.
    for round in 0..20 {
        let began = Instant::now();
        let nodes: Value = with(http.get(url("/nodes")))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(nodes["items"].as_array().unwrap().len(), 1);
        let (act, body) = if round % 2 == 0 {
            ("disable", json!({ "reason": "disk" }))
        } else {
            ("enable", json!({}))
        };
        let path = format!("/nodes/node-0000/{act}");
        let done = with(http.post(url(&path))).json(&body).send().await.unwrap();
        assert_eq!(done.status(), 200);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    drains.shutdown().await;
    scene.proxies[0].always("broadcast_tx_sync", None);
    // The gateway looks for what was decided four times a second.
    scene.sleep(1000).await;
    scene.ends().await;
}
