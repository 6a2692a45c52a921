//! Envelopes of JSON-RPC, and the bounds on what clients can send or hold.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hpc_devnet::{Config, Devnet, Error};
use serde_json::{Value, json};

use crate::support::{config, scene, scene_with};

#[test]
fn methods_that_are_not_supported_are_not_found() {
    let scene = scene();
    for method in [
        "broadcast_tx_async",
        "broadcast_tx_commit",
        "net_info",
        "genesis",
        "subscribe",
        "consensus_state",
        "",
    ] {
        let answer = scene.rpc.error(method, &json!({}));
        assert_eq!(
            answer,
            (-32601, "Method not found".into(), String::new()),
            "{method}"
        );
    }
}

#[test]
fn envelopes_follow_json_rpc_and_cometbft() {
    let scene = scene();
    let post = |body: &str| scene.rpc.http("POST", "/", body.as_bytes()).unwrap();
    assert_eq!(
        post(r#"{"jsonrpc":"2.0","id":"x-1","method":"health"}"#).json()["id"],
        "x-1"
    );
    assert_eq!(
        post(r#"{"jsonrpc":"2.0","id":5,"method":"health","params":[]}"#).json(),
        json!({"jsonrpc":"2.0","id":5,"result":{}})
    );
    assert_eq!(post(r#"{"jsonrpc":"2.0","method":"health"}"#).body, b"");
    let batch = post(r#"[{"id":1,"method":"health"},{"method":"health"},{"id":2,"method":"nope"}]"#).json();
    assert_eq!(batch.as_array().unwrap().len(), 2);
    assert_eq!(batch[1]["error"]["code"], -32601);
    let single = post(r#"[{"id":1,"method":"health"}]"#).json();
    assert_eq!(single["result"], json!({}));
    for body in ["{", "5", "\u{0}"] {
        let answer = post(body);
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (500, &json!(-32700)),
            "{body}"
        );
    }
    let many = vec![json!({"id": 1, "method": "health"}); 65];
    assert_eq!(post(&Value::Array(many).to_string()).status, 400);
    let error = scene.rpc.error("status", &json!(["x"]));
    assert_eq!((error.0, error.1.as_str()), (-32602, "Invalid params"));
    // By position, as some clients send it.
    assert_eq!(
        scene.rpc.call("block", &json!(["1"]))["block"]["header"]["height"],
        "1"
    );
}

#[test]
fn the_root_takes_post_and_what_is_unknown_is_not_found() {
    let scene = scene();
    assert_eq!(scene.rpc.http("GET", "/health", b"").unwrap().json(), json!({}));
    assert_eq!(scene.rpc.http("GET", "/", b"").unwrap().status, 405);
    assert_eq!(scene.rpc.http("GET", "/genesis", b"").unwrap().status, 404);
    assert_eq!(scene.rpc.http("GET", "/a/b", b"").unwrap().status, 404);
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let scene = scene();
    let tx = "A".repeat(1_000_001);
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync", "params": {"tx": tx}}).to_string();
    // The server may close the connection before everything is sent; then there is no answer to read.
    if let Ok(answer) = scene.rpc.http("POST", "/", body.as_bytes()) {
        assert_eq!(answer.status, 400);
    }
    assert_eq!(scene.rpc.call("health", &json!({})), json!({}));
}

#[test]
fn connections_are_bounded_and_freed() {
    let scene = scene_with(|config| config.limits.connections = 4);
    let held: Vec<TcpStream> = (0..4)
        .map(|_| TcpStream::connect(&scene.rpc.addr).unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut refused = TcpStream::connect(&scene.rpc.addr).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // A reset also says that it is refused.
    drop(refused.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
    let mut bytes = Vec::new();
    assert!(refused.read_to_end(&mut bytes).is_err() || bytes.is_empty());
    drop(held);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while scene.rpc.http("GET", "/health", b"").is_err() {
        assert!(std::time::Instant::now() < deadline, "connections are not freed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_address_that_others_reach_needs_to_be_allowed() {
    let remote = |allow_remote| {
        let mut config: Config = config();
        config.rpc_addr = "0.0.0.0:0".parse().unwrap();
        config.allow_remote = allow_remote;
        Devnet::start(config)
    };
    assert!(matches!(remote(false), Err(Error::RemoteNotAllowed(_))));
    remote(true).unwrap().shutdown();
}

#[test]
fn after_a_shutdown_nobody_listens() {
    let scene = scene();
    let addr = scene.chain.rpc_addr();
    scene.chain.shutdown();
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn what_only_reads_may_be_asked_by_get() {
    let scene = scene();
    let get = |path: &str| {
        let answer = scene.rpc.http("GET", path, b"").unwrap();
        (answer.status, answer.json())
    };
    let (status, answer) = get("/status");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["result"]["node_info"]["network"], crate::support::CHAIN_ID);
    assert_eq!(answer["id"], -1);
    let (status, answer) = get("/block?height=1");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["result"]["block"]["header"]["height"], "1");
    let (status, answer) = get("/block?height=999999");
    assert_eq!(
        (status, &answer["error"]["code"]),
        (500, &(-32603).into()),
        "{answer}"
    );
    let (status, answer) = get("/broadcast_tx_sync?tx=0x00");
    assert_eq!(
        (status, &answer["error"]["code"]),
        (404, &(-32601).into()),
        "{answer}"
    );
}
