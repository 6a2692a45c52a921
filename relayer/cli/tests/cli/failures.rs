//! Exit codes and errors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hpc_devnet::{BlockMode, GasPrice};
use serde_json::Value;

use crate::forgetful::forgetful;
use crate::world::{CHAIN_ID, CLUSTER, Program, World};

fn code(error: &Value) -> &str {
    error["code"].as_str().unwrap()
}

#[test]
fn a_setting_that_is_missing_is_named_with_flag_and_variable() {
    let program = Program::new();
    let error = program.error(2, &["query", "hpc", "params"]);
    assert_eq!(code(&error), "setting_missing");
    let remedy = error["remedy"].as_str().unwrap();
    assert!(
        remedy.contains("--node") && remedy.contains("VIRTENGINE_NODE"),
        "{remedy}"
    );
    let text = program.run(&["query", "hpc", "params"]);
    assert!(
        text.err
            .starts_with("error[setting_missing]: no node is set\nremedy: give --node"),
        "{}",
        text.err
    );
}

#[test]
fn wrong_usage_is_2_also_in_json() {
    let program = Program::new();
    assert_eq!(code(&program.error(2, &["query", "hpc", "node", "a/b"])), "usage");
    assert_eq!(code(&program.error(2, &["qeury"])), "usage");
    assert_eq!(program.run(&["query", "hpc", "node"]).code, 2);
}

#[test]
fn a_proof_that_cannot_be_read_is_1_with_a_remedy() {
    let program = Program::new();
    let junk = program.path("junk.json");
    std::fs::write(&junk, "{}").unwrap();
    for (path, word, part) in [
        (program.path("none.json"), "file_error", "check the path"),
        (junk, "proof_unreadable", "heartbeat prove"),
    ] {
        let error = program.error(1, &["proof", "verify", path.to_str().unwrap()]);
        assert_eq!(code(&error), word);
        let remedy = error["remedy"].as_str().unwrap();
        assert!(remedy.contains(part), "{remedy}");
    }
}

#[test]
fn a_node_that_is_not_there_is_5() {
    let program = Program::new();
    let query = ["query", "hpc", "params", "--contract", "wasm1x", "--node"];
    for (node, word) in [
        ("http://127.0.0.1:1", "node_unreachable"),
        ("http://no.such.host.invalid:26657", "node_unreachable"),
    ] {
        assert_eq!(code(&program.error(5, &[&query[..], &[node]].concat())), word);
    }
    assert_eq!(
        code(&program.error(2, &[&query[..], &["not a url"]].concat())),
        "bad_node_url"
    );
}

#[test]
fn a_machine_without_any_ca_speaks_plain_http() {
    let mut world = World::deployed();
    for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        world.program.set(name, "/dev/null");
    }
    world.program.ok(&["query", "hpc", "params"]);
    let query = ["query", "hpc", "params", "--node", "https://127.0.0.1:1"];
    let error = world.program.error(5, &query);
    assert!(error.to_string().contains("No CA certificates"), "{error}");
}

#[test]
fn what_does_not_exist_is_3() {
    let world = World::deployed();
    let query = |arguments: &[&str]| world.program.error(3, &[&["query"], arguments].concat());
    assert_eq!(code(&query(&["hpc", "node", "node-nowhere"])), "unknown_node");
    assert_eq!(
        code(&query(&["hpc", "cluster", "hpc-nowhere"])),
        "unknown_cluster"
    );
    assert_eq!(code(&query(&["tx", &"AB".repeat(32)])), "tx_not_found");
    let owner = world.owner.address("wasm").unwrap();
    assert_eq!(
        code(&query(&["hpc", "params", "--contract", &owner])),
        "not_found"
    );
    assert_eq!(
        code(
            &world
                .program
                .error(3, &["tx", "hpc", "sweep", "--from", "nobody", "--yes"])
        ),
        "key_not_found"
    );
}

#[test]
fn what_the_contract_refuses_is_4_with_its_code_before_and_after_inclusion() {
    let world = World::deployed();
    let drain = [
        "tx",
        "hpc",
        "drain-node",
        "node-nowhere",
        "--from",
        "owner",
        "--yes",
    ];
    let simulated = world.program.error(4, &drain);
    assert_eq!(code(&simulated), "unknown_node");
    assert!(simulated.get("txhash").is_none());
    let included = world
        .program
        .error(4, &[&drain[..], &["--gas", "300000"]].concat());
    assert_eq!(code(&included), "unknown_node");
    assert_eq!(included["codespace"], "wasm");
    assert!(included["height"].as_u64().unwrap() > 0);
    let hash = included["txhash"].as_str().unwrap();
    assert_ne!(world.program.json(&["query", "tx", hash])["code"], 0);
    world.tx(&["hpc", "create-cluster", CLUSTER]);
    let again = ["tx", "hpc", "create-cluster", CLUSTER, "--from", "owner", "--yes"];
    assert_eq!(code(&world.program.error(4, &again)), "cluster_exists");
    let text = world.program.run(&again);
    assert!(
        text.err.contains("error[cluster_exists]:") && text.err.contains("\nremedy: "),
        "{}",
        text.err
    );
}

#[test]
fn what_the_chain_refuses_is_4_with_a_stable_code() {
    let world = World::with(|config| config.min_gas_price = GasPrice::parse("0.01stake").unwrap());
    let node = world.chain.rpc_url();
    let owner = world.owner.address("wasm").unwrap();
    let send = |chain_id: &str, from: &str, amount: &str, more: &[&str]| {
        let base = [
            "tx",
            "bank",
            "send",
            &owner,
            amount,
            "--from",
            from,
            "--yes",
            "--node",
            &node,
            "--chain-id",
            chain_id,
        ];
        let ran = world.program.run(&[&base[..], more, &["-o", "json"]].concat());
        let error: Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
        (ran.code, error["error"]["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        send(CHAIN_ID, "owner", "1stake", &[]),
        (4, "insufficient_fee".into())
    );
    let fee = ["--gas-prices", "0.01stake"];
    assert_eq!(
        send(CHAIN_ID, "owner", "9999999999999stake", &fee),
        (4, "insufficient_funds".into())
    );
    assert_eq!(
        send(
            CHAIN_ID,
            "owner",
            "1stake",
            &["--gas", "20000", "--fees", "1000stake"]
        ),
        (4, "out_of_gas".into())
    );
    assert_eq!(
        send("another-1", "owner", "1stake", &fee),
        (2, "wrong_chain".into())
    );
    world.program.ok(&["keys", "add", "poor"]);
    assert_eq!(
        send(CHAIN_ID, "poor", "1stake", &fee),
        (4, "account_unknown".into())
    );
}

/// What is told of a transfer whose outcome is not known.
fn sent_without_outcome(world: &World, node: &str, timeout: &str) -> Value {
    let owner = world.owner.address("wasm").unwrap();
    let transfer = ["tx", "bank", "send", &owner, "1stake", "--from", "owner", "--yes"];
    let how = ["--chain-id", CHAIN_ID, "--node", node, "--timeout", timeout];
    world.program.error(6, &[&transfer[..], &how].concat())
}

#[test]
fn an_outcome_that_does_not_come_in_time_is_6_and_can_be_looked_up_later() {
    let world = World::with(|config| config.blocks = BlockMode::OnDemand);
    for _ in 0..3 {
        world.chain.produce_block().unwrap();
    }
    let node = world.chain.rpc_url();
    let error = sent_without_outcome(&world, &node, "3s");
    assert_eq!(code(&error), "outcome_unknown");
    let hash = error["txhash"].as_str().unwrap();
    assert_eq!(error["remedy"], format!("virtengine query tx {hash}"));
    world.program.error(3, &["query", "tx", hash, "--node", &node]);
    world.chain.produce_block().unwrap();
    assert_eq!(
        world.program.json(&["query", "tx", hash, "--node", &node])["code"],
        0
    );
}

#[test]
fn where_no_node_keeps_what_came_of_a_transaction_that_is_in_a_block_its_outcome_is_unknown() {
    let world = World::with(|config| config.blocks = BlockMode::OnDemand);
    for _ in 0..3 {
        world.chain.produce_block().unwrap();
    }
    let node = forgetful(world.chain.rpc_addr());
    let told = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut came = false;
            // At most a minute, if it is never told.
            for _ in 0..300 {
                came |= world.chain.mempool_len() > 0;
                // Blocks that come so fast: up to some hundred of them it may take effect.
                if came {
                    for _ in 0..50 {
                        world.chain.produce_block().unwrap();
                    }
                }
                if told.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let error = sent_without_outcome(&world, &node, "60s");
        told.store(true, Ordering::Relaxed);
        error
    });
    assert_eq!(code(&error), "outcome_unknown");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("is not known"), "{message}");
    let hash = error["txhash"].as_str().unwrap();
    let remedy = error["remedy"].as_str().unwrap();
    assert!(
        remedy.contains(&format!("virtengine query tx {hash} --node")),
        "{remedy}"
    );
    // As it says: a node with an index knows.
    let known = world
        .program
        .json(&["query", "tx", hash, "--node", &world.chain.rpc_url()]);
    assert_eq!(known["code"], 0);
    assert_eq!(known["height"], error["height"]);
}

#[test]
fn something_that_is_no_chain_is_told_apart() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let read = stream.read(&mut request).unwrap();
        assert!(read > 0);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
            .unwrap();
    });
    let error = Program::new().error(
        5,
        &["query", "hpc", "params", "--contract", "wasm1x", "--node", &url],
    );
    assert_eq!(code(&error), "not_a_node");
    server.join().unwrap();
}
