//! What blocks do to a transaction: they halt, refuse it, carry the old time, or somebody else's transaction.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_chain::msg;
use hpc_chain::send::{Gas, Pay, SendOptions, send_and_wait};
use virtengine_provider::config::Span;
use virtengine_provider::daemon::load_key;
use virtengine_provider::home::Home;

use crate::logs::Logs;
use crate::proxy::Fault;
use crate::scene::{Scene, Setting};

const BROADCAST: &str = "broadcast_tx_sync";

#[tokio::test]
async fn a_transaction_in_a_block_with_code_30_ends_when_its_sequence_is_seen_unused_at_its_height() {
    let mut scene = Scene::start().await;
    let mut tries = 0;
    let (before, signed) = loop {
        scene.proxies[0].always(BROADCAST, Some(Fault::Swallow));
        let before = scene.signed_so_far();
        scene.beat().await;
        let signed = scene.signed(before).await;
        let timeout = Logs::field(&signed, "timeout_height");
        let until = Instant::now() + Duration::from_secs(60);
        // CheckTx at height T takes it for the next block, whose height is above T.
        while scene.site.devnet.height().unwrap() < timeout {
            assert!(
                Instant::now() < until,
                "the chain never comes to height {timeout}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        scene.site.devnet.halt();
        if scene.site.devnet.height().unwrap() == timeout {
            break (before, signed);
        }
        // The machine was busy, and a block too many was made meanwhile.
        tries += 1;
        assert!(tries < 10, "this machine is too slow for the test");
        scene.proxies[0].always(BROADCAST, None);
        scene.site.devnet.resume();
        scene.settled().await;
    };
    let offered = scene.proxies[0].offered().pop().unwrap();
    let rpc = scene.site.client.chain().endpoints().best().unwrap().clone();
    let answer = rpc
        .broadcast_tx_sync(&STANDARD.decode(offered).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.code, 0, "{}", answer.log);
    scene.proxies[0].always(BROADCAST, None);
    scene.site.devnet.resume();
    let line = scene.says("a transaction is in a block without effect").await;
    assert!(line.contains("code=30"), "{line}");
    let again = scene.signed(before + 1).await;
    assert_eq!(
        Logs::field(&again, "sequence"),
        Logs::field(&signed, "sequence"),
        "its sequence was not used"
    );
    scene.ends().await;
}

#[tokio::test]
async fn while_the_first_blocks_after_a_halt_carry_the_old_time_nothing_is_sent() {
    let mut scene = Scene::start().await;
    scene.site.devnet.halt();
    scene.says("the chain makes no blocks").await;
    let before = scene.proxies[0].offered().len();
    scene.beat().await;
    scene.proxies[0].skew(-3600);
    scene.site.devnet.resume();
    scene
        .says("the newest block's time is more than a minute from this clock")
        .await;
    scene.sleep(1000).await;
    assert_eq!(scene.proxies[0].offered().len(), before, "nothing was sent");
    scene.proxies[0].skew(0);
    scene.ends().await;
}

#[tokio::test]
async fn a_transaction_of_another_process_on_our_key_is_told_and_nothing_is_lost() {
    let mut scene = Scene::start().await;
    scene.proxies[0].always(BROADCAST, Some(Fault::Swallow));
    let before = scene.signed_so_far();
    scene.beat().await;
    scene.signed(before).await;
    let key = load_key(&Home::new(scene.site.home()), "relayer").unwrap();
    let own = key.address("wasm").unwrap();
    let options = SendOptions {
        gas: Gas::Fixed(200_000),
        pay: Pay::Coins(vec![]),
        ..crate::site::options()
    };
    let coin = "1stake".parse().unwrap();
    let messages = vec![msg::send(&own, &own, &[coin])];
    send_and_wait(scene.site.client.chain(), &key, &options, messages)
        .await
        .unwrap();
    scene.proxies[0].always(BROADCAST, None);
    scene.says("another process signs with the key relayer").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_chain_that_halts_past_the_timeout_expires_nothing_before_it_moves_again() {
    let mut scene = Scene::start().await;
    scene.proxies[0].always(BROADCAST, Some(Fault::Swallow));
    let before = scene.signed_so_far();
    scene.beat().await;
    scene.signed(before).await;
    scene.site.devnet.halt();
    scene.says("the chain makes no blocks").await;
    let ended = scene.logs.lines("transaction ended").len();
    // Longer than the transaction was to live.
    scene.sleep(5_000).await;
    assert_eq!(
        scene.logs.lines("transaction ended").len(),
        ended,
        "nothing ends while heights stand still"
    );
    assert_eq!(scene.signed_so_far(), before + 1, "and nothing new is signed");
    scene.proxies[0].always(BROADCAST, None);
    scene.site.devnet.resume();
    scene.says("no longer so").await;
    scene.ends().await;
}

#[tokio::test]
async fn a_restarted_node_with_an_empty_mempool_gets_the_same_bytes_again() {
    // The transaction must be on its way before the chain counts as halted.
    let setting = Setting {
        config: |c| c.chain.halt_after = Span::seconds(60),
        ..Setting::default()
    };
    let mut scene = Scene::with(setting).await;
    scene.site.devnet.halt();
    let before = scene.logs.lines("a transaction was accepted").len();
    scene.beat().await;
    let accepted = || scene.logs.lines("a transaction was accepted").len();
    scene.waits("acceptance", async || accepted() > before).await;
    scene.site.devnet.clear_mempool();
    scene.site.devnet.resume();
    scene
        .waits("a second acceptance", async || accepted() > before + 1)
        .await;
    scene.ends().await;
}
