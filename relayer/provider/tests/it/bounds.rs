//! What the admin listener does not take.

use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::admin::{credential, request};
use crate::agent::problem;
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_listener_is_bounded_in_every_direction() {
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
    // More connections than places: those beyond are closed, the rest is served.
    let addr = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    // Those of the requests above are gone first.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let mut idle = Vec::new();
    for _ in 0..128 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let mut beyond = TcpStream::connect(addr).await.unwrap();
    let mut byte = [0; 1];
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), beyond.read(&mut byte)).await;
    assert_eq!(ended.expect("closed").unwrap_or(0), 0);
    let one = &mut idle[0];
    one.write_all(b"GET /api/v1/admin/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 12];
    one.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
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
