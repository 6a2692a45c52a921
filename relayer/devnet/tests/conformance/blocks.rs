//! Status, blocks, results, single transactions; time, halts and the mempool's memory.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::tendermint;
use hpc_devnet::{BlockMode, Error};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::rpc::hash;
use crate::support::{CHAIN_ID, scene, scene_with};

const NOBODY: &str = "wasm1qg5ega6dykkxc307y25pecuufrjkxkaggkkxh7nad0vhyhtuhw3sq29c3m";

fn number(value: &Value) -> u64 {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no string"))
        .parse()
        .unwrap()
}

#[test]
fn a_commit_is_the_one_validators_signature_over_the_blocks_hash() {
    let scene = scene();
    scene.chain.produce_block().unwrap();
    let known = scene.rpc.call("validators", &json!({}));
    assert_eq!((&known["count"], &known["total"]), (&json!("1"), &json!("1")));
    let validator = &known["validators"][0];
    let key = STANDARD
        .decode(validator["pub_key"]["value"].as_str().unwrap())
        .unwrap();
    let address = hex::encode_upper(&Sha256::digest(&key)[..20]);
    assert_eq!(validator["address"], address);
    let block = scene.rpc.call("block", &json!({"height": "2"}));
    let signed = scene.rpc.call("commit", &json!({"height": "2"}))["signed_header"].clone();
    assert_eq!(signed["header"], block["block"]["header"]);
    assert_eq!(signed["commit"]["block_id"]["hash"], block["block_id"]["hash"]);
    let signatures = signed["commit"]["signatures"].as_array().unwrap();
    assert_eq!(signatures.len(), 1);
    assert_eq!(signatures[0]["validator_address"], address);
    // As CometBFT's own types read it.
    let commit: tendermint::block::Commit = serde_json::from_value(signed["commit"].clone()).unwrap();
    assert_eq!(commit.height.value(), 2);
    let vote = commit.signatures[0].clone();
    assert!(matches!(
        vote,
        tendermint::block::CommitSig::BlockIdFlagCommit {
            signature: Some(_),
            ..
        }
    ));
}

#[test]
fn status_reports_cometbft_0_38_and_the_newest_block() {
    let scene = scene();
    scene.chain.produce_block().unwrap();
    let status = scene.rpc.call("status", &json!({}));
    assert_eq!(status["node_info"]["network"], CHAIN_ID);
    assert!(
        status["node_info"]["version"]
            .as_str()
            .unwrap()
            .starts_with("0.38.")
    );
    assert_eq!(status["sync_info"]["latest_block_height"], "2");
    assert_eq!(status["sync_info"]["earliest_block_height"], "1");
    assert_eq!(status["sync_info"]["catching_up"], false);
    let block = scene.rpc.call("block", &json!({}));
    assert_eq!(
        status["sync_info"]["latest_block_hash"],
        block["block_id"]["hash"]
    );
    assert_eq!(
        status["sync_info"]["latest_app_hash"],
        block["block"]["header"]["app_hash"]
    );
    assert_eq!(
        status["sync_info"]["latest_block_time"],
        block["block"]["header"]["time"]
    );
    assert_eq!(
        status["validator_info"]["address"],
        block["block"]["header"]["proposer_address"]
    );
    assert_eq!(
        status["validator_info"]["pub_key"]["type"],
        "tendermint/PubKeyEd25519"
    );
}

#[test]
fn headers_are_chained_and_hash_as_cometbft_hashes_them() {
    let scene = scene();
    let message = scene.alice.send(NOBODY, &[(1, "stake")]);
    let tx = scene.alice.sign_next(&[message]);
    scene.commit(&tx);
    scene.chain.produce_block().unwrap();
    let mut before: Option<Value> = None;
    for height in 1..=3 {
        let block = scene.rpc.call("block", &json!({"height": height.to_string()}));
        let header = &block["block"]["header"];
        assert_eq!(number(&header["height"]), height);
        // An independent implementation reads the header and computes its hash.
        let parsed: tendermint::block::Header = serde_json::from_value(header.clone()).unwrap();
        assert_eq!(
            parsed.hash().to_string(),
            block["block_id"]["hash"].as_str().unwrap()
        );
        if let Some(before) = before {
            assert_eq!(header["last_block_id"], before["block_id"]);
            assert_ne!(header["app_hash"], before["block"]["header"]["app_hash"]);
            assert!(header["time"].as_str() > before["block"]["header"]["time"].as_str());
        }
        before = Some(block);
    }
    let block = scene.rpc.call("block", &json!({"height": "2"}));
    assert_eq!(block["block"]["data"]["txs"], json!([STANDARD.encode(&tx)]));
    let leaves = [Sha256::digest(&tx).to_vec()];
    let root =
        tendermint::merkle::simple_hash_from_byte_vectors::<tendermint::crypto::default::Sha256>(&leaves);
    assert_eq!(block["block"]["header"]["data_hash"], hex::encode_upper(root));
}

#[test]
fn heights_that_are_not_there_are_errors_as_cometbft_words_them() {
    let scene = scene();
    for method in ["block", "block_results"] {
        assert_eq!(
            scene.rpc.error(method, &json!({"height": "9"})),
            (
                -32603,
                "Internal error".into(),
                "height 9 must be less than or equal to the current blockchain height 1".into()
            )
        );
        for height in ["0", "-4"] {
            let (code, _, data) = scene.rpc.error(method, &json!({"height": height}));
            assert_eq!(
                (code, data),
                (-32603, format!("height must be greater than 0, but got {height}"))
            );
        }
        let (code, message, data) = scene.rpc.error(method, &json!({"height": 1}));
        assert_eq!((code, message.as_str()), (-32602, "Invalid params"));
        assert!(
            data.contains("invalid 64-bit integer encoding \"1\", expected string"),
            "{data}"
        );
        assert_eq!(scene.rpc.error(method, &json!({"height": "x"})).0, -32602);
    }
}

#[test]
fn block_results_have_the_results_in_order_and_null_for_an_empty_block() {
    let scene = scene();
    for amount in [1, 2_000_000_000] {
        let message = scene.alice.send(NOBODY, &[(amount, "stake")]);
        let tx = scene.alice.sign_next(&[message]);
        scene.accept(&tx);
    }
    scene.chain.produce_block().unwrap();
    let results = scene.rpc.call("block_results", &json!({"height": "2"}));
    assert_eq!(results["height"], "2");
    let codes: Vec<&Value> = results["txs_results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["code"])
        .collect();
    assert_eq!(codes, [&json!(0), &json!(5)]);
    for field in ["finalize_block_events", "validator_updates"] {
        assert_eq!(results[field], json!([]));
    }
    assert!(results["consensus_param_updates"]["block"]["max_gas"].is_string());
    scene.chain.produce_block().unwrap();
    let header = scene.rpc.call("block", &json!({"height": "3"}));
    let app_hash = STANDARD.decode(results["app_hash"].as_str().unwrap()).unwrap();
    assert_eq!(header["block"]["header"]["app_hash"], hex::encode_upper(app_hash));
    assert_eq!(
        scene.rpc.call("block_results", &json!({"height": "3"}))["txs_results"],
        Value::Null
    );
}

#[test]
fn a_transaction_is_found_by_its_hash_once_it_is_in_a_block() {
    let scene = scene();
    let message = scene.alice.send(NOBODY, &[(1, "stake")]);
    let tx = scene.alice.sign_next(&[message]);
    scene.accept(&tx);
    let by_hash = json!({"hash": STANDARD.encode(Sha256::digest(&tx)), "prove": true});
    assert_eq!(
        scene.rpc.error("tx", &by_hash),
        (
            -32603,
            "Internal error".into(),
            format!("tx ({}) not found", hash(&tx))
        )
    );
    scene.chain.produce_block().unwrap();
    let found = scene.rpc.call("tx", &by_hash);
    assert_eq!(
        (&found["hash"], &found["height"], &found["index"]),
        (&json!(hash(&tx)), &json!("2"), &json!(0))
    );
    assert_eq!(found["tx"], STANDARD.encode(&tx));
    assert_eq!(found["tx_result"]["codespace"], "");
    assert_eq!(found["tx_result"]["log"], "");
    assert_eq!(
        scene.rpc.error("tx", &json!({"hash": "AAAA"})).2,
        "tx (000000) not found"
    );
    assert_eq!(
        scene.rpc.error("tx", &json!({})).2,
        "transaction hash cannot be empty"
    );
}

#[test]
fn a_repeated_broadcast_is_in_the_cache_even_long_after_the_commit() {
    let scene = scene();
    let message = scene.alice.send(NOBODY, &[(1, "stake")]);
    let tx = scene.alice.sign_next(&[message]);
    let in_cache = (
        -32603,
        "Internal error".to_string(),
        "tx already exists in cache".to_string(),
    );
    scene.accept(&tx);
    assert_eq!(scene.rpc.broadcast_error(&tx), in_cache);
    for _ in 0..20 {
        scene.chain.produce_block().unwrap();
    }
    assert_eq!(scene.rpc.broadcast_error(&tx), in_cache);
    // A node that has restarted has forgotten it; CheckTx then sees the old sequence.
    scene.chain.clear_mempool();
    scene.refuse(
        &tx,
        32,
        "account sequence mismatch, expected 1, got 0: incorrect account sequence",
    );
}

#[test]
fn what_check_tx_refused_or_a_block_failed_may_be_sent_again() {
    let scene = scene();
    let message = scene.alice.send(NOBODY, &[(2_000_000_000, "stake")]);
    scene.alice.sequence.set(1);
    let early = scene.alice.sign(std::slice::from_ref(&message));
    for _ in 0..2 {
        scene.refuse(
            &early,
            32,
            "account sequence mismatch, expected 0, got 1: incorrect account sequence",
        );
    }
    scene.alice.sequence.set(0);
    let failing = scene.alice.sign(&[message]);
    assert_eq!(scene.commit(&failing)["code"], 5);
    assert_eq!(scene.rpc.broadcast(&failing)["code"], 32);
    // The refused repetition changes nothing about what the index says.
    assert_eq!(scene.rpc.tx(&failing)["tx_result"]["code"], 5);
}

#[test]
fn a_full_mempool_and_a_large_transaction_are_errors_of_the_rpc() {
    let mut scene = scene_with(|config| {
        config.limits.mempool_txs = 1;
        config.limits.tx_bytes = 600;
    });
    let message = scene.alice.send(NOBODY, &[(1, "stake")]);
    let first = scene.alice.sign_next(std::slice::from_ref(&message));
    scene.accept(&first);
    let second = scene.alice.sign_next(std::slice::from_ref(&message));
    let (code, text, data) = scene.rpc.broadcast_error(&second);
    assert_eq!((code, text.as_str()), (-32603, "Internal error"));
    assert!(
        data.starts_with("mempool is full: number of txs 1 (max: 1), total txs bytes "),
        "{data}"
    );
    scene.chain.set_mempool_size(2);
    scene.accept(&second);
    scene.chain.produce_block().unwrap();
    scene.alice.memo = "x".repeat(250);
    let large = scene.alice.sign(&vec![message; 3]);
    let data = scene.rpc.broadcast_error(&large).2;
    assert_eq!(
        data,
        format!("Tx too large. Max size is 600, but got {}", large.len())
    );
}

#[test]
fn a_halted_chain_answers_but_makes_no_blocks_and_goes_on_with_the_old_time() {
    let scene = scene();
    scene.chain.set_time(4_000_000_000);
    scene.chain.produce_block().unwrap();
    let before = scene.chain.block_time_nanos().unwrap();
    scene.chain.halt();
    scene.chain.set_time(4_000_000_500);
    assert!(matches!(scene.chain.produce_block(), Err(Error::Halted)));
    assert_eq!(
        scene.rpc.call("status", &json!({}))["sync_info"]["latest_block_height"],
        "2"
    );
    let tx = scene.alice.sign(&[scene.alice.send(NOBODY, &[(1, "stake")])]);
    scene.accept(&tx);
    scene.chain.resume();
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.chain.block_time_nanos().unwrap(), before + 1_000_000);
    assert_eq!(scene.rpc.tx(&tx)["height"], "3");
    scene.chain.produce_block().unwrap();
    assert!(scene.chain.block_time_nanos().unwrap() >= 4_000_000_500 * 1_000_000_000);
}

#[test]
fn on_transactions_blocks_follow_until_nothing_waits_also_after_a_halt() {
    let scene = scene_with(|config| {
        config.blocks = BlockMode::OnTransaction;
        config.genesis.max_block_gas = Some(500_000);
    });
    scene.chain.halt();
    for _ in 0..4 {
        scene.accept(
            &scene
                .alice
                .sign_next(&[scene.alice.send(NOBODY, &[(1, "stake")])]),
        );
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((scene.chain.mempool_len(), scene.chain.height().unwrap()), (4, 1));
    scene.chain.resume();
    let deadline = Instant::now() + Duration::from_secs(60);
    while scene.chain.mempool_len() > 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(scene.balance(NOBODY), 4);
    assert_eq!(scene.chain.height().unwrap(), 5);
}

#[test]
fn block_time_follows_the_set_clock_but_never_goes_back() {
    let scene = scene();
    scene.chain.set_time(5_000_000_000);
    scene.chain.produce_block().unwrap();
    let time = scene.rpc.call("block", &json!({}))["block"]["header"]["time"].clone();
    assert!(
        time.as_str().unwrap().starts_with("2128-06-11T08:53:20"),
        "{time}"
    );
    let before = scene.chain.block_time_nanos().unwrap();
    scene.chain.set_time(1_000);
    scene.chain.produce_block().unwrap();
    assert_eq!(scene.chain.block_time_nanos().unwrap(), before + 1_000_000);
}
