//! What an endpoint answers to a broadcast, or does not.

use crate::proxy::{Fault, SIMULATE, SMART, check_tx, error, query_fails};
use crate::scene::Scene;

/// One broadcast of reports goes wrong like this; what the log says, and that all ends well.
async fn broadcast(faults: impl IntoIterator<Item = Fault>, said: &str) {
    let mut scene = Scene::start().await;
    scene.proxies[0].next("broadcast_tx_sync", faults);
    scene.beat().await;
    scene.says(said).await;
    scene.ends().await;
}

#[tokio::test]
async fn a_timeout_after_acceptance_is_followed_to_the_transactions_end() {
    broadcast([Fault::NoAnswer], "a broadcast had no answer").await;
}

#[tokio::test]
async fn a_reset_before_or_after_acceptance_loses_nothing_and_doubles_nothing() {
    let resets = [Fault::ResetBefore, Fault::Reset];
    broadcast(resets, "a broadcast had no answer").await;
}

#[tokio::test]
async fn a_signature_that_a_node_checked_before_its_first_block_is_no_refusal() {
    let log = "signature verification failed; please verify account number (0) and chain-id (hpc-test-1): (unable to verify \
               single signer signature): unauthorized";
    broadcast(
        [Fault::Instead(check_tx(4, log))],
        "a broadcast had no answer that counts",
    )
    .await;
}

#[tokio::test]
async fn bytes_that_arrive_twice_take_effect_once() {
    broadcast([Fault::Twice], "a transaction was sent before").await;
}

#[tokio::test]
async fn a_sequence_above_ours_is_first_taken_for_our_own_transaction() {
    let mut scene = Scene::start().await;
    // The bytes arrive, and the endpoint answers as it does when they are in its mempool already.
    let log = "account sequence mismatch, expected 99, got 1: incorrect account sequence";
    scene.proxies[0].next("broadcast_tx_sync", [Fault::ArrivesAnd(check_tx(32, log))]);
    scene.beat().await;
    scene
        .says("another sequence is expected; the account is read: account sequence mismatch, expected 99")
        .await;
    scene.settled().await;
    assert!(scene.logs.lines("another process signs").is_empty());
    scene.ends().await;
}

#[tokio::test]
async fn a_sequence_below_ours_is_waited_for() {
    let mut scene = Scene::start().await;
    let log = "account sequence mismatch, expected 0, got 1: incorrect account sequence";
    scene.proxies[0].next("broadcast_tx_sync", [Fault::Instead(check_tx(32, log))]);
    scene.beat().await;
    scene
        .says("another sequence is expected; the account is read: account sequence mismatch, expected 0")
        .await;
    scene.ends().await;
}

#[tokio::test]
async fn already_in_cache_proves_nothing_and_the_same_bytes_go_again() {
    let mut scene = Scene::start().await;
    let cached = Fault::Instead(error("tx already exists in cache"));
    scene.proxies[0].next("broadcast_tx_sync", [cached.clone(), cached]);
    let before = scene.proxies[0].offered().len();
    scene.beat().await;
    scene
        .says("a transaction was sent before: tx already exists in cache")
        .await;
    scene.settled().await;
    let offered = scene.proxies[0].offered().split_off(before);
    assert!(
        offered.len() >= 3 && offered.windows(2).all(|w| w[0] == w[1]),
        "the same bytes"
    );
    scene.ends().await;
}

#[tokio::test]
async fn a_full_mempool_is_tried_again_with_the_same_bytes() {
    let full = "mempool is full: number of txs 5000 (max: 5000), total txs bytes 1 (max: 67108864)";
    let full = Fault::Instead(error(full));
    broadcast([full.clone(), full], "no room for a transaction").await;
}

#[tokio::test]
async fn a_transaction_that_is_too_large_is_followed_by_smaller_ones() {
    let setting = crate::scene::Setting {
        agents: 12,
        config: |c| c.batch.submit_interval = virtengine_provider::config::Span::seconds(1),
        // Room for a registration or two, and for some reports.
        chain: |c| c.limits.tx_bytes = 2_400,
        ..Default::default()
    };
    let mut scene = Scene::with(setting).await;
    let before = scene.signed_so_far();
    scene.beat().await;
    scene.settled().await;
    let lines = scene.logs.lines("transaction signed").split_off(before);
    let items = |line: &String| crate::logs::Logs::field(line, "items");
    assert!(items(&lines[0]) > items(lines.last().unwrap()), "{lines:#?}");
    scene.says("the next one is half as large").await;
    scene.ends().await;
}

#[tokio::test]
async fn registrations_whose_simulation_fails_together_go_in_smaller_parts() {
    let setting = crate::scene::Setting {
        agents: 6,
        ..Default::default()
    };
    let mut scene = crate::scene::Scene::prepare(setting).await;
    // One registration has some 1,500 characters in hex, with its transaction some 2,000.
    let log = "rpc error: code = Unknown desc = out of gas in location: wasm contract; gasWanted: 1, gasUsed: 2: out of gas";
    scene.proxies[0].always(SIMULATE, Some(Fault::IfLonger(6_000, query_fails(11, log))));
    scene.enrol_together().await;
    scene
        .says("registrations are refused together, fewer follow")
        .await;
    scene.ends().await;
}

#[tokio::test]
async fn a_registration_that_cannot_be_simulated_lets_others_pass() {
    let setting = crate::scene::Setting {
        agents: 2,
        ..Default::default()
    };
    let mut scene = crate::scene::Scene::prepare(setting).await;
    let log = "rpc error: code = Unknown desc = some trouble that nobody has heard of";
    // Alone at first: simulated, and once more to see whether it is this one.
    let trouble = Fault::Instead(query_fails(2, log));
    scene.proxies[0].next(SIMULATE, [trouble.clone(), trouble]);
    let first = scene.ask_to_register(0).await;
    assert_eq!(first, 202);
    scene
        .says("a registration cannot be simulated; others go before it")
        .await;
    scene.agents.remove(0);
    scene.enrol().await;
    scene.ends().await;
}

#[tokio::test]
async fn a_simulation_that_is_too_large_for_the_endpoint_is_followed_by_a_smaller_one() {
    let setting = crate::scene::Setting {
        agents: 8,
        config: |c| c.batch.submit_interval = virtengine_provider::config::Span::seconds(1),
        ..Default::default()
    };
    let mut scene = Scene::with(setting).await;
    let body = error("error reading request body: http: request body too large");
    scene.proxies[0].always(SIMULATE, Some(Fault::IfLonger(3_500, body)));
    let before = scene.signed_so_far();
    scene.beat().await;
    scene
        .says("a batch is refused as it is, the next is smaller")
        .await;
    scene.settled().await;
    let lines = scene.logs.lines("transaction signed").split_off(before);
    assert!(lines.len() > 1, "{lines:#?}");
    scene.ends().await;
}

async fn on_chain(scene: &Scene, node: usize) -> u32 {
    scene.site.node(&scene.agents[node].node).await.sequence
}

/// Two nodes with a report each, and the simulation of the first one's fails.
async fn of_two_one_cannot_be_simulated() -> Scene {
    let setting = crate::scene::Setting {
        agents: 2,
        ..Default::default()
    };
    let mut scene = Scene::with(setting).await;
    // What travels with a node's first report makes it longer than the next one.
    for sequence in [1, 2] {
        scene.beat_of(1..2).await;
        scene
            .waits("the second node", async || on_chain(&scene, 1).await == sequence)
            .await;
    }
    let lengths = scene.proxies[0].simulated();
    let [.., first, next] = lengths.as_slice() else {
        panic!("{lengths:?}")
    };
    assert!(first > next, "{lengths:?}");
    let log = "rpc error: code = Unknown desc = some trouble that nobody has heard of";
    let trouble = Fault::IfLonger(usize::midpoint(*first, *next), query_fails(2, log));
    scene.proxies[0].always(SIMULATE, Some(trouble));
    scene.beat().await;
    scene
        .waits("the other node", async || on_chain(&scene, 1).await == 3)
        .await;
    let line = scene
        .says("a report is not taken alone; others go before it")
        .await;
    assert!(
        line.contains("node-0000") && line.contains("nobody has heard of"),
        "{line}"
    );
    assert_eq!(on_chain(&scene, 0).await, 0);
    scene
}

#[tokio::test]
async fn a_report_that_is_not_taken_lets_others_pass_and_is_tried_again() {
    let mut scene = of_two_one_cannot_be_simulated().await;
    scene.proxies[0].always(SIMULATE, None);
    scene
        .waits("the first node", async || on_chain(&scene, 0).await == 3)
        .await;
    assert_eq!(scene.site.ops("/readyz").await.0, 200);
    scene.site.stop_daemon().await;
}

#[tokio::test]
async fn a_report_that_is_never_taken_is_named_and_the_others_go_on() {
    let mut scene = of_two_one_cannot_be_simulated().await;
    scene
        .waits("the trouble", async || {
            let (status, body) = scene.site.ops("/readyz").await;
            status == 503 && body.contains("a report of node hpc-cluster-1/node-0000 is not taken")
        })
        .await;
    scene.beat_of(1..2).await;
    scene
        .waits("the other node again", async || on_chain(&scene, 1).await == 4)
        .await;
    assert_eq!(on_chain(&scene, 0).await, 0);
    assert!(scene.proxies[0].simulated().len() < 60, "no loop");
    scene.site.stop_daemon().await;
}

/// Recorded, but for most of its stack, from wasmd 0.70.3 that was killed and came up again.
const NO_BLOCK_YET: &str = "rpc error: code = Unknown desc = recovered: Block (unix) time must never be empty or negative \
                            \nstack:\ngoroutine 117 [running]:\nruntime/debug.Stack()\n\t/usr/local/go/src/runtime/debug/stack.go:26 \
                            +0x5e\n: panic [cosmos/cosmos-sdk@v0.54.0/baseapp/recovery.go:72] with gas used: '97397': unknown request";

#[tokio::test]
async fn before_a_nodes_first_block_nothing_is_any_reports_fault() {
    let setting = crate::scene::Setting {
        agents: 2,
        ..Default::default()
    };
    let mut scene = Scene::with(setting).await;
    scene.proxies[0].always(SIMULATE, Some(Fault::Instead(query_fails(6, NO_BLOCK_YET))));
    let before = scene.proxies[0].simulated().len();
    scene.beat().await;
    scene
        .waits("several tries", async || {
            scene.proxies[0].simulated().len() >= before + 3
        })
        .await;
    let line = scene.says("has seen no block since it came up").await;
    assert!(!line.contains("goroutine"), "{line}");
    scene.proxies[0].always(SIMULATE, None);
    scene.settled().await;
    for fault in ["a batch is refused as it is", "a report is not taken"] {
        assert!(scene.logs.lines(fault).is_empty(), "{}", scene.logs.text());
    }
    scene.ends().await;
}

#[tokio::test]
async fn before_a_nodes_first_block_the_other_one_is_asked() {
    let setting = crate::scene::Setting {
        proxies: 2,
        ..Default::default()
    };
    let mut scene = Scene::with(setting).await;
    for path in [SIMULATE, SMART] {
        scene.proxies[0].always(path, Some(Fault::Instead(query_fails(6, NO_BLOCK_YET))));
    }
    scene.beat().await;
    scene.settled().await;
    assert!(
        scene.logs.lines("nothing is signed now").is_empty(),
        "{}",
        scene.logs.text()
    );
    scene.ends().await;
}
