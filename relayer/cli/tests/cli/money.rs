//! What transactions cost.

use serde_json::json;

use crate::world::{CHAIN_ID, World};

fn balance(world: &World, account: &str) -> u128 {
    let node = world.chain.rpc_url();
    let answer = world.program.json(&[
        "query", "bank", "balance", account, "--denom", "stake", "--node", &node,
    ]);
    answer["balances"][0]["amount"]
        .as_str()
        .unwrap_or("0")
        .parse()
        .unwrap()
}

#[test]
fn the_fee_is_the_gas_limit_times_the_price_rounded_up_and_is_what_is_paid() {
    let world = World::deployed();
    let before = balance(&world, "owner");
    let tx = world.tx(&["hpc", "create-cluster", "cluster-1", "--gas-prices", "0.025stake"]);
    let limit = tx["gas_wanted"].as_u64().unwrap();
    let fee = u128::from(limit).div_ceil(40);
    assert_eq!(tx["fee"], json!([{"denom": "stake", "amount": fee.to_string()}]));
    assert_eq!(before - balance(&world, "owner"), fee);
    assert!(tx["gas_used"].as_u64().unwrap() <= limit);

    let fixed = world.tx(&[
        "hpc",
        "activate-cluster",
        "cluster-1",
        "--gas",
        "400000",
        "--fees",
        "123stake",
    ]);
    assert_eq!(fixed["gas_wanted"], 400_000);
    assert_eq!(before - balance(&world, "owner"), fee + 123);
}

#[test]
fn coins_arrive_and_the_transaction_is_found_by_its_hash() {
    let world = World::start();
    let node = world.chain.rpc_url();
    world.program.ok(&["keys", "add", "bob"]);
    let send = [
        "tx",
        "bank",
        "send",
        "bob",
        "700stake",
        "--from",
        "owner",
        "--chain-id",
        CHAIN_ID,
        "--node",
        &node,
    ];
    let tx = world
        .program
        .json(&[&send[..], &["--yes", "--memo", "rent"]].concat());
    assert_eq!(balance(&world, "bob"), 700);
    let hash = tx["txhash"].as_str().unwrap();
    let found = world.program.json(&["query", "tx", hash, "--node", &node]);
    assert_eq!(found["height"], tx["height"]);
    assert_eq!(found["code"], 0);
    let text = world.program.ok(&["query", "tx", hash, "--node", &node]);
    assert!(text.starts_with(&format!("txhash: {hash}\n")), "{text}");
}

#[test]
fn a_dry_run_and_a_missing_confirmation_send_nothing() {
    let world = World::start();
    let node = world.chain.rpc_url();
    let owner = world.owner.address("wasm").unwrap();
    let send = [
        "tx",
        "bank",
        "send",
        &owner,
        "1stake",
        "--from",
        "owner",
        "--chain-id",
        CHAIN_ID,
        "--node",
        &node,
    ];
    let cost = world
        .program
        .json(&[&send[..], &["--dry-run", "--gas-prices", "1stake"]].concat());
    assert_eq!(cost["sender"], owner);
    assert_eq!(
        cost["fee"][0]["amount"],
        cost["gas_wanted"].as_u64().unwrap().to_string()
    );
    assert_eq!(world.program.error(2, &send)["code"], "confirmation_needed");
    assert_eq!(balance(&world, "owner"), 1_000_000_000);
    assert_eq!(world.chain.mempool_len(), 0);
}
