//! What the admin listener does not take.

use std::time::Duration;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use virtengine_provider::clock;
use virtengine_provider::identity::{Ca, NodeCsr, NodeSubject};

use crate::admin::{credential, id, request};
use crate::agent::{client, csr, problem};
use crate::logs::Logs;
use crate::site::{Site, cluster};

/// A request on this connection; the status that it is answered with.
async fn ask(stream: &mut TcpStream, token: Option<&str>) -> String {
    let shown = token.map_or_else(String::new, |t| format!("Authorization: Bearer {t}\r\n"));
    let head = format!("GET /api/v1/admin/nodes HTTP/1.1\r\nHost: x\r\n{shown}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    while !answer.ends_with('}') {
        let read = timeout(Duration::from_secs(10), stream.read(&mut bytes)).await;
        let read = read.expect("answered").unwrap();
        assert!(read > 0, "closed after {answer}");
        answer.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_listener_is_bounded_in_every_direction() {
    let (logs, _logging) = Logs::start();
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.admin.requests_per_minute = 20;
    site.start_with(config).await;
    let token = credential(&site, "operator", "1h");
    let post = |path: &str| request(&site, Method::POST, path, &token);
    let json = "application/json";
    for (what, sent, status, code) in [
        ("no such path", post("/nothing"), 404, "malformed"),
        ("another method", post("/nodes"), 405, "malformed"),
        ("no JSON", post("/commands").body("x").header("content-type", json), 400, "malformed"),
        ("another type", post("/commands").body("{}"), 415, "malformed"),
        ("compressed", post("/commands").body("{}").header("content-type", json).header("content-encoding", "gzip"), 415, "malformed"),
        ("a large body", post("/commands").body("x".repeat(2_000_000)).header("content-type", json), 413, "body_too_large"),
        ("a large head", post("/commands").body("{}").header("x-large", "x".repeat(20_000)), 431, "body_too_large"),
        ("an unknown member", post("/commands").json(&serde_json::json!({ "nod_id": "x" })), 400, "malformed"),
        ("an unknown parameter", post("/nodes/node-0001/enable?cluster=x"), 400, "malformed"),
        ("an id that is none", post("/nodes/x/enable"), 400, "malformed"),
        ("an order that is none", post("/commands").json(&serde_json::json!({ "node_id": "node-0001", "type": "run_diagnostic", "parameters": { "name": "rm -rf /" } })), 400, "invalid_field"),
    ] {
        let response = sent.send().await.unwrap();
        if status == 405 {
            assert_eq!(response.headers()["allow"], "GET,HEAD");
        }
        assert_eq!(problem(response).await, (status, code.to_owned()), "{what}");
    }
    // More connections than places: whoever has shown a credential keeps his, and of the others the oldest goes for a newcomer.
    let addr = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let viewer = credential(&site, "viewer", "1h");
    let mut known = TcpStream::connect(addr).await.unwrap();
    assert_eq!(ask(&mut known, Some(&viewer)).await, "200");
    let mut idle = Vec::new();
    for _ in 0..=128 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    let mut byte = [0; 1];
    let ended = timeout(Duration::from_secs(10), idle[0].read(&mut byte)).await;
    assert_eq!(ended.expect("closed").unwrap_or(0), 0);
    let served = request(&site, Method::GET, "/nodes", &viewer)
        .send()
        .await
        .unwrap();
    assert_eq!(served.status(), 200);
    assert_eq!(ask(&mut known, Some(&viewer)).await, "200");
    let told = logs.lines("refused: more admin connections without a credential than it may have; ");
    assert_eq!(told.len(), 1, "{told:#?}");
    // Who shows none gets no second try on a connection.
    let bare = idle.last_mut().unwrap();
    assert_eq!(ask(bare, None).await, "401");
    let ended = timeout(Duration::from_secs(10), bare.read(&mut byte)).await;
    assert_eq!(ended.expect("closed").unwrap_or(0), 0);
    drop(idle);
    // And one credential makes no more requests than it may.
    let mut limited = None;
    for _ in 0..60 {
        if let Ok(response) = request(&site, Method::GET, "/nodes", &token).send().await
            && response.status() == 429
        {
            limited = Some(response);
            break;
        }
    }
    let limited = limited.expect("never limited");
    assert!(limited.headers().contains_key("retry-after"));
    assert_eq!(limited.headers()["connection"], "close");
    assert_eq!(problem(limited).await.1, "rate_limited");
    assert_eq!(
        request(&site, Method::GET, "/nodes", &credential(&site, "viewer", "1h"))
            .send()
            .await
            .unwrap()
            .status(),
        200,
        "nobody else's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_admin_connection_of_a_credential_goes_for_a_newer_one_and_the_log_names_whose_it_was() {
    let (logs, _logging) = Logs::start();
    let site = Site::start().await;
    let addr = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let (many, other) = (
        credential(&site, "viewer", "1h"),
        credential(&site, "operator", "1h"),
    );
    let mut open = Vec::new();
    for token in std::iter::repeat_n(&many, 128).chain([&other]) {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        assert_eq!(ask(&mut stream, Some(token)).await, "200");
        open.push(stream);
    }
    let mut byte = [0; 1];
    let ended = timeout(Duration::from_secs(10), open[0].read(&mut byte)).await;
    assert_eq!(ended.expect("closed").unwrap_or(0), 0);
    // Whoever took the last place has said so before it answers again.
    for (stream, token) in open.iter_mut().rev().zip([&other, &many]) {
        assert_eq!(ask(stream, Some(token)).await, "200");
    }
    let told = logs.lines("an admin connection of this credential is closed for a newer one");
    assert_eq!(told.len(), 1, "{told:#?}");
    let whose = format!("credential={}", id(&many));
    assert!(
        told[0].contains(&whose) && told[0].contains("from=127.0.0.1"),
        "{told:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_fails_at_the_admin_listener_is_logged_once_with_what_is_wrong() {
    let (logs, _logging) = Logs::start();
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.admin.tls = true;
    site.start_with(config).await;
    let addr = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let url = format!("https://localhost:{}/api/v1/admin/nodes", addr.port());
    let (foreign, _) = Ca::create(clock::now(), [9; 16]).unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let (cluster, node) = (cluster(), "node-0001".parse().unwrap());
    let subject = NodeSubject {
        cluster: &cluster,
        node: &node,
        epoch: 1,
    };
    let forged = NodeCsr::from_pem(&csr(&key)).unwrap();
    let forged = foreign
        .issue_node(&forged, &subject, clock::now(), 3600, [1; 16])
        .unwrap();
    for _ in 0..3 {
        let mut plain = TcpStream::connect(addr).await.unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        drop(plain.read_to_end(&mut answer).await);
        assert!(!answer.starts_with(b"HTTP"), "no plain HTTP");
        let forger = client(&site.ca(), Some((&forged.pem, &key)));
        assert!(forger.get(&url).send().await.is_err());
    }
    for what in [
        "a connection that speaks no TLS",
        "a TLS handshake with a certificate of a CA that is not trusted",
    ] {
        let told = logs.lines(&format!("refused: {what}; "));
        assert_eq!(told.len(), 1, "{told:#?}");
    }
}
