//! Several paying keys.

use std::collections::BTreeMap;

use crate::proxy::Fault;
use crate::scene::{Scene, Setting};
use crate::site::run;

/// Which batches hold reports of which pages, as the store has it.
async fn pages(scene: &Scene) -> BTreeMap<i64, Vec<i64>> {
    let file = scene.site.home().join("store/provider.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .read_only(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT DISTINCT b.batch_id, n.page FROM batch_report b
         JOIN node n ON n.cluster_id = b.cluster_id AND n.node_id = b.node_id",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    pool.close().await;
    let mut pages: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (batch, page) in rows {
        pages.entry(batch).or_default().push(page);
    }
    pages
}

#[tokio::test]
async fn two_keys_work_at_once_and_never_on_the_same_page() {
    let setting = Setting {
        // Two pages: 64 nodes each.
        agents: 66,
        ..Setting::default()
    };
    let mut scene = Scene::prepare(setting).await;
    scene.enrol().await;
    scene.site.stop_daemon().await;
    let (_, err, code) = run(&scene.site.home(), &[], &["keys", "add", "second"]);
    assert_eq!(code, 0, "{err}");
    let (address, ..) = run(&scene.site.home(), &[], &["keys", "address", "second"]);
    let owner = scene.site.owner.address("wasm").unwrap();
    let gift = hpc_chain::msg::send(&owner, address.trim(), &["1000000000stake".parse().unwrap()]);
    scene.site.owner_signs(gift).await;
    let mut config = scene.config.clone();
    config.keys.extra_relayers = vec!["second".into()];
    scene.site.start_with(config).await;

    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::Swallow));
    let before = scene.signed_so_far();
    // The first page goes with one key and does not arrive; the second page comes later, with more of the first.
    scene.beat_of(0..64).await;
    let first = scene.signed(before).await;
    scene.beat_of(0..66).await;
    let second = scene.signed(before + 1).await;
    let signer = |line: &str| line.contains("signer=\"second\"");
    assert_ne!(signer(&first), signer(&second), "{first}\n{second}");
    let held = pages(&scene).await;
    assert_eq!(held.len(), 2, "{held:?}");
    let mut all: Vec<i64> = held.values().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1], "no page is in two transactions: {held:?}");
    scene.proxies[0].always("broadcast_tx_sync", None);
    scene.settled().await;
    scene.effects().await;
    scene.site.stop_daemon().await;
}
