//! However long the chain stands still: the store is bounded by nodes, and catches up.

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
