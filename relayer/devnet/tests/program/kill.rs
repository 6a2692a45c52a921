//! SIGKILL of the chain in a loop, under load: every acknowledged block is there, and the state is what the
//! blocks make of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::command_line::home;
use crate::process::{Process, output, text};
use crate::support::rpc::{Rpc, hash};
use crate::support::wallet::Wallet;

/// How often the chain is killed: `HPC_TEST_RUNS`, or enough to meet every phase of a block.
fn rounds() -> u64 {
    std::env::var("HPC_TEST_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(8)
}

/// A call that may fail because the chain is being killed.
fn attempt(rpc: &Rpc, method: &str, params: &Value) -> Option<Value> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let answer = rpc.http("POST", "/", request.to_string().as_bytes()).ok()?;
    serde_json::from_slice::<Value>(&answer.body)
        .ok()?
        .get("result")
        .cloned()
}

/// Sends as fast as it can until told to stop. Returns the hashes that were seen in a block, with their height.
fn load(rpc: &Rpc, start: u64, stop: &AtomicBool) -> BTreeSet<(String, String)> {
    let alice = Wallet::new(1);
    alice.sequence.set(start);
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut seen = BTreeSet::new();
    while !stop.load(Ordering::SeqCst) {
        let tx = alice.sign(&[alice.send(&Wallet::new(2).address(), &[(1, "stake")])]);
        match attempt(rpc, "broadcast_tx_sync", &json!({"tx": STANDARD.encode(&tx)})) {
            Some(answer) if answer["code"] == 0 => {
                alice.sequence.set(alice.sequence.get() + 1);
                sent.push(tx);
            }
            Some(answer) => panic!("refused: {answer}"),
            None => continue,
        }
        for tx in sent.iter().rev().take(8) {
            let found = attempt(
                rpc,
                "tx_search",
                &json!({"query": format!("tx.hash='{}'", hash(tx)), "page": "1"}),
            );
            if let Some(height) = found.and_then(|f| f["txs"].get(0)?["height"].as_str().map(str::to_string))
            {
                seen.insert((hash(tx), height));
            }
        }
    }
    seen
}

fn sequence(rpc: &Rpc) -> u64 {
    use cosmrs::proto::cosmos::auth::v1beta1::{BaseAccount, QueryAccountRequest, QueryAccountResponse};
    use cosmrs::proto::traits::Message;
    let request = QueryAccountRequest {
        address: Wallet::new(1).address(),
    };
    let answer: QueryAccountResponse = rpc.query("/cosmos.auth.v1beta1.Query/Account", &request);
    BaseAccount::decode(answer.account.unwrap().value.as_slice())
        .unwrap()
        .sequence
}

fn height(rpc: &Rpc) -> u64 {
    rpc.call("status", &json!({}))["sync_info"]["latest_block_height"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn after_sigkill_under_load_heights_are_contiguous_state_is_the_replay_and_seen_transactions_are_found() {
    let home = home(&[]);
    let mut committed: BTreeSet<(String, String)> = BTreeSet::new();
    let (mut least, mut round) = (0, 0);
    // More rounds where the machine is so busy that hardly anything is seen in a block.
    while round < rounds() || (committed.len() <= 10 && round < 10 * rounds()) {
        round += 1;
        let chain = Process::start(home.path(), &["--block-time", "5ms"]);
        assert!(height(&chain.rpc) >= least, "blocks that were announced are gone");
        for (hash, height) in &committed {
            let found = chain.rpc.call(
                "tx_search",
                &json!({"query": format!("tx.hash='{hash}'"), "page": "1"}),
            );
            assert_eq!(found["txs"][0]["height"], height.as_str(), "{hash}: {found}");
            assert_eq!(found["txs"][0]["tx_result"]["code"], 0);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (start, addr, stopping) = (sequence(&chain.rpc), chain.rpc.addr.clone(), Arc::clone(&stop));
        let loading = std::thread::spawn(move || load(&Rpc::new(addr), start, &stopping));
        // Moments spread over the phases of a block and of the file's growth.
        let until = Instant::now() + Duration::from_millis(150 + round * 37 % 230);
        while Instant::now() < until {
            least = least.max(height(&chain.rpc));
        }
        chain.kill();
        stop.store(true, Ordering::SeqCst);
        committed.extend(loading.join().unwrap());
        let verified = output(&["verify"], home.path());
        assert!(
            verified.status.success(),
            "round {round}: {}",
            text(&verified.stderr)
        );
    }
    assert!(
        committed.len() > 10,
        "only {} transactions were seen in blocks",
        committed.len()
    );
    // The chain's own account agrees: as many sequences used as coins moved.
    let chain = Process::start(home.path(), &["--block-time", "5ms"]);
    use cosmrs::proto::cosmos::bank::v1beta1::{QueryBalanceRequest, QueryBalanceResponse};
    let request = QueryBalanceRequest {
        address: Wallet::new(2).address(),
        denom: "stake".to_string(),
    };
    let balance: QueryBalanceResponse = chain.rpc.query("/cosmos.bank.v1beta1.Query/Balance", &request);
    assert_eq!(balance.balance.unwrap().amount, sequence(&chain.rpc).to_string());
}
