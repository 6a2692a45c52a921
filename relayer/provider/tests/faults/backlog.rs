//! However long the chain stands still: the store is bounded by nodes, and catches up.

use std::time::{Duration, Instant};

use virtengine_provider::config::Span;

use crate::scene::{Scene, Setting};

#[tokio::test]
async fn with_the_chain_stopped_the_store_is_bounded_by_nodes_and_catches_up_afterwards() {
    let agents = 8;
    let setting = Setting {
        agents,
        ..Setting::default()
    };
    let mut scene = Scene::with(setting).await;
    scene.beat().await;
    scene.settled().await;
    scene.site.devnet.halt();
    scene.says("the chain makes no blocks").await;
    let file = scene.site.home().join("store/provider.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .read_only(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let rounds = 20;
    for _ in 0..rounds {
        scene.beat().await;
        let (waiting, bound): (i64, i64) =
            sqlx::query_as("SELECT (SELECT count(*) FROM waiting), (SELECT count(*) FROM batch_report)")
                .fetch_one(&pool)
                .await
                .unwrap();
        let most = i64::try_from(agents).unwrap();
        assert!(
            waiting <= most && bound <= most,
            "{waiting} wait, {bound} are under way"
        );
    }
    scene.site.devnet.resume();
    scene.settled().await;
    // Each of them is on record, most in the record of the one that replaced it.
    scene
        .waits("the records", async || {
            let (counted,): (i64,) = sqlx::query_as(
                "SELECT coalesce(sum(1 + superseded_count), 0) FROM report_end WHERE ended = 'on_chain'",
            )
            .fetch_one(&pool)
            .await
            .unwrap();
            counted == i64::from(rounds + 1) * i64::try_from(agents).unwrap()
        })
        .await;
    let effects = scene.effects().await;
    assert!(
        effects <= u64::try_from(agents).unwrap() * 4,
        "{effects} reports on chain"
    );
    pool.close().await;
    scene.site.stop_daemon().await;
}

#[tokio::test]
async fn however_long_many_nodes_report_each_is_on_chain_within_a_batch_interval() {
    // More than a chain took that was told of one node at a time.
    let agents = 40;
    let interval = Duration::from_secs(2);
    let setting = Setting {
        agents,
        config: |config| config.batch.submit_interval = Span::seconds(2),
        ..Setting::default()
    };
    let mut scene = Scene::prepare(setting).await;
    scene.enrol_together().await;
    let mut slowest = Duration::ZERO;
    for round in 0..12 {
        scene.beat().await;
        let accepted = Instant::now();
        scene.settled().await;
        let lag = accepted.elapsed();
        slowest = slowest.max(lag);
        // Blocks, and what this machine does besides; it does not grow.
        assert!(lag < interval * 5, "round {round}: {lag:?}");
    }
    println!("{agents} nodes, the slowest round {slowest:?} after its last heartbeat");
    scene.site.stop_daemon().await;
}
