//! Several paying keys.

use std::collections::BTreeMap;

use hpc_chain::msg;
use hpc_schema::registry::ExecuteMsg;
use serde_json::json;
use virtengine_provider::config::{Config, Span};

use crate::proxy::Fault;
use crate::scene::{Scene, Setting};
use crate::site::{CLUSTER, run};

/// Another key of this name in the keyring; its address.
async fn add(scene: &Scene, name: &str) -> String {
    let (_, err, code) = run(&scene.site.home(), &[], &["keys", "add", name]);
    assert_eq!(code, 0, "{err}");
    let (address, ..) = run(&scene.site.home(), &[], &["keys", "address", name]);
    let owner = scene.site.owner.address("wasm").unwrap();
    let gift = msg::send(&owner, address.trim(), &["1000000000stake".parse().unwrap()]);
    scene.site.owner_signs(gift).await;
    address.trim().to_owned()
}

/// Stops the daemon without waiting for its transaction, and starts it with another configuration.
async fn restart(scene: &mut Scene, change: impl FnOnce(&mut Config)) {
    scene.site.stop_daemon().await;
    change(&mut scene.config);
    let config = scene.config.clone();
    scene.site.start_with(config).await;
}

fn hasty() -> Setting {
    Setting {
        agents: 2,
        config: |c| {
            c.stop.settlement = Span::millis(50);
            // It must not have ended by itself when the next daemon starts.
            c.chain.tx_lifetime = Span::seconds(30);
        },
        ..Setting::default()
    }
}

#[tokio::test]
async fn a_paying_key_is_replaced_while_its_transaction_is_under_way_and_nothing_is_lost() {
    let mut scene = Scene::with(hasty()).await;
    let second = add(&scene, "second").await;
    let before = scene.signed_so_far();
    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::Swallow));
    scene.beat().await;
    let of_first = scene.signed(before).await;
    assert!(of_first.contains("signer=\"relayer\""), "{of_first}");
    // The former key need not be there any more.
    restart(&mut scene, |c| c.keys.relayer = "second".into()).await;
    scene.says("is followed to its end").await;
    scene.beat().await;
    scene.proxies[0].always("broadcast_tx_sync", None);
    scene.settled().await;
    scene.says("nothing is under way any more of a key").await;
    let last = scene.logs.lines("transaction signed").pop().unwrap();
    assert!(last.contains("signer=\"second\""), "{last}");
    let chain = scene.site.client.chain();
    let account = chain.account(&second).await.unwrap().value.unwrap();
    assert!(account.sequence > 0, "the new key pays");
    assert!(!scene.site.ops("/readyz").await.1.contains("relayer"));
    // Each report took effect at most once; the second of each node counts, whoever brought the first.
    let effects = scene.effects().await;
    assert!((2..=4).contains(&effects), "{effects}");
    scene.site.stop_daemon().await;
}

#[tokio::test]
async fn the_operator_key_is_replaced_while_a_registration_is_under_way_and_the_former_counts_no_more() {
    let mut scene = Scene::prepare(hasty()).await;
    let (first, ..) = run(&scene.site.home(), &[], &["keys", "address", "operator"]);
    let next = add(&scene, "operator-2").await;
    let operators = |all: &[&str]| -> ExecuteMsg {
        serde_json::from_value(json!({ "update_cluster": { "cluster_id": CLUSTER, "operators": all } }))
            .unwrap()
    };
    scene.site.owner_sends(&operators(&[first.trim(), &next])).await;
    let before = scene.signed_so_far();
    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::Swallow));
    assert_eq!(scene.ask_to_register(0).await, 202);
    scene.signed(before).await;
    restart(&mut scene, |c| c.keys.operator = "operator-2".into()).await;
    scene.proxies[0].always("broadcast_tx_sync", None);
    // The one that was under way comes on chain with the former key's signature, or is signed anew.
    scene.take_certificate(0).await;
    scene.site.owner_sends(&operators(&[&next])).await;
    scene.enrol_one(1).await;
    scene.beat().await;
    scene.settled().await;
    let drained = {
        let (home, env) = (scene.site.home(), scene.site.env());
        tokio::task::spawn_blocking(move || run(&home, &env, &["node", "drain", "node-0001"]))
    };
    // With the former one nothing is decided any more.
    let (out, err, code) = drained.await.unwrap();
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("not_authorized"), "{err}");
    let (home, mut env) = (scene.site.home(), scene.site.env());
    env.push(("VIRTENGINE_PROVIDER__KEYS__OPERATOR".into(), "operator-2".into()));
    let drained = tokio::task::spawn_blocking(move || run(&home, &env, &["node", "drain", "node-0001"]));
    let (out, err, code) = drained.await.unwrap();
    assert_eq!(code, 0, "{out}{err}");
    scene.site.stop_daemon().await;
}

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
        // The first transaction must not have ended by itself before the second is signed.
        config: |c| c.chain.tx_lifetime = Span::seconds(30),
        ..Setting::default()
    };
    let mut scene = Scene::prepare(setting).await;
    scene.enrol().await;
    scene.site.stop_daemon().await;
    add(&scene, "second").await;
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
