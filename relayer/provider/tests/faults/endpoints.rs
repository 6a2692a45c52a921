//! Several endpoints, of which some are behind, gone, or of another chain.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hpc_chain::proof::{Trust, verify};
use virtengine_provider::daemon::{Daemon, Reread};
use virtengine_provider::home::Home;
use virtengine_provider::prove;

use crate::proxy::{Fault, error};
use crate::scene::{Scene, Setting};
use crate::site::{Site, cluster};

async fn two() -> Scene {
    let setting = Setting {
        proxies: 2,
        ..Setting::default()
    };
    Scene::with(setting).await
}

#[tokio::test]
async fn an_endpoint_behind_by_fifty_blocks_is_passed_over() {
    let mut scene = two().await;
    scene.proxies[0].freeze(true);
    let frozen = scene.site.devnet.height().unwrap();
    scene
        .waits("fifty blocks", async || {
            scene.site.devnet.height().unwrap() >= frozen + 50
        })
        .await;
    scene.says("an endpoint of chain.rpc is behind the others").await;
    scene.beat().await;
    scene.settled().await;
    scene.proxies[0].freeze(false);
    scene.says("an endpoint of chain.rpc is well again").await;
    scene.ends().await;
}

#[tokio::test]
async fn endpoints_at_different_heights_are_never_mixed() {
    let mut scene = two().await;
    // Each in turn stops at a height for a while: an account answer of the one is never held against a height of the other.
    for round in 0..6 {
        scene.proxies[round % 2].freeze(true);
        scene.beat().await;
        scene.settled().await;
        scene.proxies[round % 2].freeze(false);
    }
    assert!(
        scene.logs.lines("another process signs").is_empty(),
        "{}",
        scene.logs.text()
    );
    assert!(
        scene.logs.lines("SequenceRegressed").is_empty(),
        "{}",
        scene.logs.text()
    );
    // One that stays behind is named.
    scene.proxies[0].freeze(true);
    scene.says("an endpoint of chain.rpc is behind the others").await;
    scene.proxies[0].freeze(false);
    scene.ends().await;
}

#[tokio::test]
async fn an_endpoint_that_hangs_or_breaks_is_replaced_by_the_other() {
    let mut scene = two().await;
    for method in ["status", "abci_query", "tx", "block", "broadcast_tx_sync"] {
        scene.proxies[0].always(method, Some(Fault::Swallow));
    }
    scene.says("an endpoint of chain.rpc does not answer").await;
    scene.beat().await;
    scene.settled().await;
    for method in ["status", "abci_query", "tx", "block", "broadcast_tx_sync"] {
        scene.proxies[0].always(method, None);
        scene.proxies[1].always(method, Some(Fault::ResetBefore));
    }
    scene.says("an endpoint of chain.rpc is well again").await;
    scene.ends().await;
}

#[tokio::test]
async fn an_endpoint_that_leaves_methods_unanswered_holds_up_nothing_and_is_named_with_them() {
    let mut scene = two().await;
    let broken = ["tx", "block", "block_results", "broadcast_tx_sync"];
    for method in broken {
        scene.proxies[0].always(method, Some(Fault::ResetBefore));
    }
    // Said once it has lasted a minute, in which everything goes on.
    let until = Instant::now() + Duration::from_secs(180);
    let mut ready = String::new();
    while !ready.contains("broadcast_tx_sync") {
        assert!(Instant::now() < until, "{}", scene.logs.text());
        scene.beat().await;
        scene.settled().await;
        (_, ready) = scene.site.ops("/readyz").await;
    }
    let url = scene.proxies[0].url();
    assert!(ready.contains("endpoint_lost") && ready.contains(&url), "{ready}");
    let line = scene.says("answers some calls and not others").await;
    assert!(line.contains(&url), "{line}");
    let (_, metrics) = scene.site.ops("/metrics").await;
    let gauge = format!("_unanswered_seconds{{endpoint=\"{url}\",method=\"broadcast_tx_sync\"}}");
    assert!(metrics.contains(&gauge), "{metrics}");
    for method in broken {
        scene.proxies[0].always(method, None);
    }
    scene.ends().await;
}

#[tokio::test]
async fn without_an_index_of_transactions_they_are_read_out_of_their_blocks() {
    let mut scene = Scene::start().await;
    scene.proxies[0].set_index(false);
    for _ in 0..2 {
        scene.beat().await;
        scene.settled().await;
    }
    scene.says("its block is read instead").await;
    // The operator hears of it, once.
    let line = scene
        .says("an endpoint of chain.rpc keeps no index of transactions")
        .await;
    assert!(line.contains("indexer"), "{line}");
    scene
        .waits("the notice", async || {
            let (_, ready) = scene.site.ops("/readyz").await;
            ready.contains("index_missing")
        })
        .await;
    let said = "an endpoint of chain.rpc keeps no index of transactions";
    assert_eq!(scene.logs.lines(said).len(), 1);
    // What was settled so is proven as well.
    let store = scene.site.store().await;
    let node = scene.agents[0].node.parse().unwrap();
    let sequence = scene.site.node(&scene.agents[0].node).await.sequence;
    let mut proof = None;
    scene
        .waits("a proof", async || {
            let found = prove::proof(store.reader(), (&cluster(), &node), None, Some(sequence)).await;
            proof = found.unwrap();
            proof.is_some()
        })
        .await;
    store.close().await;
    verify(&proof.unwrap(), &Trust::default()).unwrap();
    scene.proxies[0].set_index(true);
    scene
        .waits("its end", async || {
            let (_, ready) = scene.site.ops("/readyz").await;
            !ready.contains("index_missing")
        })
        .await;
    scene.ends().await;
}

/// How transactions of reports ended, as the log has it.
fn ends_of_reports(scene: &Scene) -> Vec<String> {
    let mut ends = scene.logs.lines("transaction ended");
    ends.retain(|line| line.contains("kind=\"reports\""));
    ends
}

#[tokio::test]
async fn where_neither_index_nor_results_are_kept_the_contract_says_what_came_of_a_transaction() {
    let mut scene = Scene::start().await;
    scene.proxies[0].set_index(false);
    let gone = Fault::Instead(error("node is not persisting finalize block responses"));
    scene.proxies[0].always("block_results", Some(gone));
    scene.beat().await;
    scene
        .says("it is in a block whose results no endpoint keeps")
        .await;
    scene
        .waits("its end", async || !ends_of_reports(&scene).is_empty())
        .await;
    let ended = ends_of_reports(&scene).remove(0);
    assert!(ended.contains("consumed"), "{ended}");
    // One look is enough, and nobody else is blamed; the key goes on.
    let looks = scene.logs.lines("it is in a block whose results").len();
    assert_eq!(looks, 1, "{}", scene.logs.text());
    assert!(scene.logs.lines("another process signs").is_empty());
    scene.ends().await;
}

#[tokio::test]
async fn an_index_that_lags_hides_no_transaction_that_another_endpoint_has() {
    let mut scene = two().await;
    // What this one says first is no answer, whichever is asked first; and the blocks do not tell either.
    let lags = Fault::Instead(error("tx (00) not found"));
    scene.proxies[0].always("tx", Some(lags));
    for proxy in &scene.proxies {
        let gone = Fault::Instead(error("node is not persisting finalize block responses"));
        proxy.always("block_results", Some(gone));
    }
    for _ in 0..3 {
        scene.beat().await;
        scene.settled().await;
    }
    scene
        .waits("their ends", async || ends_of_reports(&scene).len() >= 3)
        .await;
    for line in ends_of_reports(&scene) {
        assert!(line.contains("included"), "{line}");
    }
    scene.ends().await;
}

#[tokio::test]
async fn an_endpoint_that_refuses_calls_is_passed_over_for_one_that_does_not() {
    let mut scene = two().await;
    for method in ["abci_query", "tx", "block", "block_results"] {
        let limited = Fault::Instead(error("too many requests"));
        scene.proxies[0].always(method, Some(limited));
    }
    scene.beat().await;
    scene.settled().await;
    scene.ends().await;
}

#[tokio::test]
async fn an_endpoint_of_another_chain_is_not_asked() {
    let mut scene = two().await;
    scene.proxies[0].set_chain_id(Some("somebody-elses-1"));
    let line = scene
        .says("an endpoint of chain.rpc is of another chain and is not asked")
        .await;
    assert!(line.contains("somebody-elses-1"), "{line}");
    let before = scene.proxies[0].offered().len();
    scene.beat().await;
    scene.settled().await;
    assert_eq!(scene.proxies[0].offered().len(), before, "nothing was sent to it");
    scene.ends().await;
}

#[tokio::test]
async fn where_every_endpoint_is_of_another_chain_the_daemon_ends_and_says_which() {
    let mut scene = Scene::start().await;
    scene.proxies[0].set_chain_id(Some("somebody-elses-1"));
    let failed = scene.site.daemon.as_mut().unwrap().failed().await;
    assert_eq!(failed.exit_code(), 78);
    assert!(failed.to_string().contains("somebody-elses-1"), "{failed}");
    scene
        .says("an endpoint of chain.rpc is of another chain and is not asked")
        .await;
    // And it does not start again.
    let mut config = scene.site.config();
    config.chain.rpc = vec![scene.proxies[0].url()];
    scene.site.daemon.take().unwrap().stop().await;
    let home = virtengine_provider::home::Home::new(scene.site.home());
    let refused = virtengine_provider::daemon::Daemon::start(home, config)
        .await
        .unwrap_err();
    assert_eq!(refused.exit_code(), 78, "{refused}");
}

#[tokio::test]
async fn blocks_are_told_by_websocket_and_asked_for_where_there_is_none() {
    // The proxy has no websocket; the chain itself has.
    let mut scene = Scene::start().await;
    scene
        .says("no subscription to new blocks; they are asked for")
        .await;
    let config = {
        let mut config = scene.site.config();
        // So rarely asked that only the websocket can tell in time.
        config.chain.poll = virtengine_provider::config::Span::seconds(30);
        config
    };
    restart(&mut scene.site, config).await;
    scene.says("new blocks are told by subscription").await;
    scene.beat().await;
    let began = Instant::now();
    scene.settled().await;
    assert!(began.elapsed().as_secs() < 25, "{:?}", began.elapsed());
    scene.site.stop_daemon().await;
}

async fn restart(site: &mut Site, config: virtengine_provider::config::Config) {
    site.stop_daemon().await;
    site.start_with(config).await;
}

#[tokio::test]
async fn endpoints_change_with_a_reload_while_a_transaction_is_under_way_and_nothing_is_lost() {
    let mut scene = two().await;
    let mut config = scene.config.clone();
    config.chain.rpc = vec![scene.proxies[0].url()];
    let next = Arc::new(Mutex::new(config.clone()));
    let reread = Arc::clone(&next);
    let reread: Reread = Arc::new(move || Ok(reread.lock().unwrap().clone()));
    scene.site.stop_daemon().await;
    let home = Home::new(scene.site.home());
    let daemon = Daemon::start_rereading(home, config, Some(reread)).await.unwrap();
    scene.site.daemon = Some(daemon);
    // Signed and on its way, when the only endpoint stops to take it.
    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::ResetBefore));
    let before = scene.signed_so_far();
    scene.beat().await;
    scene.signed(before).await;
    // An address that is none changes nothing.
    let daemon = scene.site.daemon.as_ref().unwrap();
    next.lock().unwrap().chain.rpc = vec!["ftp://nowhere".to_owned()];
    let refused = daemon.reload().await.unwrap_err();
    assert!(refused.to_string().contains("chain.rpc"), "{refused}");
    assert_eq!(daemon.live().get().chain.rpc, [scene.proxies[0].url()]);
    next.lock().unwrap().chain.rpc = vec![scene.proxies[1].url()];
    daemon.reload().await.unwrap();
    scene.says("an endpoint of chain.rpc is asked no more").await;
    // By the other endpoint, over the agents' connections of before.
    scene.settled().await;
    let offered = scene.proxies[0].offered().len();
    for method in ["status", "abci_query", "tx", "block", "broadcast_tx_sync"] {
        scene.proxies[0].always(method, Some(Fault::Swallow));
    }
    scene.beat().await;
    scene.settled().await;
    assert_eq!(scene.proxies[0].offered().len(), offered, "it is asked no more");
    let (_, ready) = scene.site.ops("/readyz").await;
    assert!(!ready.contains("endpoint"), "{ready}");
    scene.ends().await;
}
