//! `tx_search`: by hash, by event, by height; pages and their limits.

use serde_json::{Value, json};

use crate::support::rpc::hash;
use crate::support::{Scene, scene};

/// 35 transactions of Alice in two blocks, one of Bob in a third.
fn busy() -> (Scene, Vec<String>) {
    let scene = scene();
    let bob = scene.bob.address();
    let mut hashes = Vec::new();
    for n in 0..35 {
        let message = scene.alice.send(&bob, &[(1, "stake")]);
        let tx = scene.alice.sign_next(&[message]);
        scene.accept(&tx);
        hashes.push(hash(&tx));
        if n == 19 {
            scene.chain.produce_block().unwrap();
        }
    }
    scene.chain.produce_block().unwrap();
    let message = scene.bob.send(&scene.alice.address(), &[(1, "stake")]);
    let tx = scene.bob.sign_next(&[message]);
    scene.commit(&tx);
    hashes.push(hash(&tx));
    (scene, hashes)
}

fn hashes(answer: &Value) -> Vec<String> {
    answer["txs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tx| tx["hash"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn pages_have_30_transactions_unless_asked_and_never_more_than_100() {
    let (scene, all) = busy();
    let query = format!("message.sender='{}'", scene.alice.address());
    let search = |params: Value| scene.rpc.call("tx_search", &params);
    // As CosmJS asks: no per_page, pages until total_count is reached.
    let first = search(json!({"query": query, "page": "1"}));
    assert_eq!(
        (first["total_count"].as_str(), hashes(&first).len()),
        (Some("35"), 30)
    );
    let second = search(json!({"query": query, "page": "2"}));
    assert_eq!([hashes(&first), hashes(&second)].concat(), all[..35]);
    // As the wasmd command line asks.
    let one = search(
        json!({"order_by": "", "page": "1", "per_page": "1", "prove": false, "query": format!("tx.hash='{}'", all[3])}),
    );
    assert_eq!(hashes(&one), [all[3].clone()]);
    assert_eq!(one["txs"][0]["index"], 3);
    assert_eq!(
        hashes(&search(json!({"query": query, "per_page": "1000"}))).len(),
        35
    );
    assert_eq!(
        hashes(&search(json!({"query": query, "per_page": "0"}))).len(),
        30
    );
    let descending = search(json!({"query": query, "order_by": "desc", "per_page": "2"}));
    assert_eq!(hashes(&descending), [all[34].clone(), all[33].clone()]);
}

#[test]
fn wrong_pages_orders_and_queries_are_errors() {
    let (scene, _) = busy();
    let query = format!("message.sender='{}'", scene.alice.address());
    let error = |params: Value| scene.rpc.error("tx_search", &params);
    for page in ["0", "3", "-1"] {
        let expected = format!("page should be within [1, 2] range, given {page}");
        assert_eq!(
            error(json!({"query": query, "page": page})),
            (-32603, "Internal error".into(), expected)
        );
    }
    assert_eq!(
        error(json!({"query": query, "order_by": "up"})).2,
        "expected order_by to be either `asc` or `desc` or empty"
    );
    for query in [
        "",
        "x",
        "tx.hash EXISTS",
        "tx.hash CONTAINS 'A'",
        "tx.hash='zz'",
        "a.b='c' OR d.e='f'",
    ] {
        assert_eq!(error(json!({"query": query})).0, -32603, "{query}");
    }
    assert_eq!(
        error(json!({"query": "a".repeat(600)})).2,
        "maximum query length exceeded"
    );
    assert_eq!(error(json!({"query": query, "page": 1})).0, -32602);
}

#[test]
fn what_is_not_there_is_found_nowhere() {
    let (scene, _) = busy();
    for query in [
        "tx.hash='0000000000000000000000000000000000000000000000000000000000000000'",
        "tx.hash='AB'",
        "message.sender='nobody'",
        "tx.height=99",
    ] {
        let answer = scene.rpc.call("tx_search", &json!({"query": query, "page": "1"}));
        assert_eq!(answer, json!({"txs": [], "total_count": "0"}), "{query}");
    }
}

#[test]
fn conditions_join_and_heights_compare() {
    let (scene, all) = busy();
    let (alice, bob) = (scene.alice.address(), scene.bob.address());
    let search = |query: String| {
        hashes(
            &scene
                .rpc
                .call("tx_search", &json!({"query": query, "per_page": "100"})),
        )
    };
    assert_eq!(search("tx.height=2".to_string()), all[..20]);
    assert_eq!(search("tx.height>2 AND tx.height<=4".to_string()), all[20..]);
    assert_eq!(
        search(format!("message.sender='{alice}' AND tx.height>2")),
        all[20..35]
    );
    assert_eq!(search(format!("transfer.recipient='{alice}'")), all[35..]);
    assert_eq!(
        search(format!("transfer.recipient='{alice}' AND message.sender='{bob}'")),
        all[35..]
    );
    assert_eq!(
        search(format!(
            "transfer.recipient='{alice}' AND message.sender='{alice}'"
        ))
        .len(),
        0
    );
    assert_eq!(
        search(format!(
            "message.action='/cosmos.bank.v1beta1.MsgSend' AND tx.height={}",
            4
        )),
        all[35..]
    );
}

#[test]
fn executions_are_found_by_contract() {
    let mut scene = scene();
    let contract = scene.instantiate();
    let message = scene.alice.execute(&contract, r#"{"increment":{"by":1}}"#, &[]);
    let tx = scene.alice.sign_next(&[message]);
    scene.commit(&tx);
    let query = format!("wasm._contract_address='{contract}' AND wasm.count='8'");
    let answer = scene.rpc.call("tx_search", &json!({"query": query, "page": "1"}));
    assert_eq!(hashes(&answer), [hash(&tx)]);
}
