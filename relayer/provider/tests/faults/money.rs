//! Fees that are too low, accounts that are empty, gas that does not suffice.

use hpc_chain::msg;
use hpc_chain::send::{Gas, Pay, SendOptions, send_and_wait};
use hpc_schema::node::NodeState;
use reqwest::Client;
use serde_json::{Value, json};
use virtengine_provider::daemon::load_key;
use virtengine_provider::home::Home;

use crate::proxy::{Fault, SIMULATE, check_tx, error, query_fails};
use crate::scene::{Scene, Setting};
use crate::site::{Site, run};

#[tokio::test]
async fn a_fee_that_is_too_low_rises_until_it_is_taken() {
    let setting = Setting {
        chain: |c| c.min_gas_price = "0.05stake".parse().unwrap(),
        config: |c| {
            c.chain.gas_price = "0.042stake".into();
            c.chain.gas_price_max = Some("0.1stake".into());
        },
        ..Setting::default()
    };
    let scene = Scene::with(setting).await;
    let line = scene.says("a transaction was refused: insufficient fees").await;
    assert!(line.contains("raise chain.gas_price"), "{line}");
    scene.ends().await;
}

#[tokio::test]
async fn a_fee_far_too_low_rises_at_once_to_what_the_node_asks_for_and_a_restart_keeps_it() {
    let setting = Setting {
        chain: |c| c.min_gas_price = "0.1stake".parse().unwrap(),
        config: |c| {
            c.chain.gas_price = "0.042stake".into();
            c.chain.gas_price_max = Some("0.21stake".into());
        },
        ..Setting::default()
    };
    let mut scene = Scene::with(setting).await;
    let expired = |scene: &Scene| scene.logs.lines("end=\"expired\"").len();
    assert_eq!(expired(&scene), 1, "{}", scene.logs.text());
    scene.site.stop_daemon().await;
    scene.site.start_with(scene.config.clone()).await;
    scene.beat().await;
    scene.settled().await;
    assert_eq!(expired(&scene), 1, "{}", scene.logs.text());
    let status: Value = serde_json::from_str(&scene.site.run(&["status", "-o", "json"]).0).unwrap();
    let price = status["gas_prices"]["relayer"].as_str();
    assert!(price.is_some_and(|p| p.ends_with("stake")), "{status}");
    scene.ends().await;
}

async fn relayer(site: &Site) -> String {
    load_key(&Home::new(site.home()), "relayer")
        .unwrap()
        .address("wasm")
        .unwrap()
}

/// The owner gives the relayer something to pay with.
async fn fund(site: &Site, coins: &str) {
    let (owner, relayer) = (site.owner.address("wasm").unwrap(), relayer(site).await);
    site.owner_signs(msg::send(&owner, &relayer, &[coins.parse().unwrap()]))
        .await;
}

#[tokio::test]
async fn without_funds_everything_waits_and_goes_on_when_they_come() {
    let mut scene = Scene::start().await;
    let key = load_key(&Home::new(scene.site.home()), "relayer").unwrap();
    let (own, owner) = (
        relayer(&scene.site).await,
        scene.site.owner.address("wasm").unwrap(),
    );
    let chain = scene.site.client.chain();
    let rest = chain.balance(&own, "stake").await.unwrap().value - 10;
    let away = msg::send(&own, &owner, &[format!("{rest}stake").parse().unwrap()]);
    let free = SendOptions {
        gas: Gas::Fixed(200_000),
        pay: Pay::Coins(vec![]),
        ..crate::site::options()
    };
    send_and_wait(chain, &key, &free, vec![away]).await.unwrap();
    scene.beat().await;
    scene.says("a transaction was refused: spendable balance").await;
    // Said first, then noted for readiness.
    scene
        .waits("readiness to end", async || {
            scene.site.ops("/readyz").await.0 == 503
        })
        .await;
    let (_, body) = scene.site.ops("/readyz").await;
    assert!(
        body.contains("insufficient_funds") && body.contains(&format!("send tokens to {own}")),
        "{body}"
    );
    // Longer than the transaction lives: it is kept, and signed anew.
    let before = scene.signed_so_far();
    scene.signed(before).await;
    fund(&scene.site, "100000000stake").await;
    scene.settled().await;
    scene
        .waits("readiness", async || scene.site.ops("/readyz").await.0 == 200)
        .await;
    scene.ends().await;
}

#[tokio::test]
async fn without_funds_from_the_beginning_it_starts_takes_what_comes_and_goes_on_when_they_come() {
    let scene = Scene::prepare(poor()).await;
    goes_on_when_funded(scene).await;
}

#[tokio::test]
async fn funds_that_come_are_seen_where_no_node_keeps_what_became_of_a_transaction() {
    let scene = Scene::prepare(poor()).await;
    scene.proxies[0].set_index(false);
    let gone = Fault::Instead(error("node is not persisting finalize block responses"));
    scene.proxies[0].always("block_results", Some(gone));
    goes_on_when_funded(scene).await;
}

fn poor() -> Setting {
    Setting {
        relayer_has: "1stake",
        ..Setting::default()
    }
}

async fn goes_on_when_funded(mut scene: Scene) {
    assert_eq!(scene.ask_to_register(0).await, 202, "the node waits");
    scene.says("a transaction was refused: spendable balance").await;
    scene
        .waits("the reason", async || {
            let (status, body) = scene.site.ops("/readyz").await;
            status == 503 && body.contains("insufficient_funds")
        })
        .await;
    assert_eq!(scene.site.ops("/healthz").await.0, 200);
    fund(&scene.site, "100000000stake").await;
    scene.take_certificate(0).await;
    scene
        .waits("readiness", async || scene.site.ops("/readyz").await.0 == 200)
        .await;
    scene.ends().await;
}

#[tokio::test]
async fn an_endpoint_that_says_no_funds_is_asked_again_until_it_says_otherwise() {
    let mut scene = Scene::start().await;
    let log = "spendable balance 1stake is smaller than 2000stake: insufficient funds: insufficient funds";
    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::Instead(check_tx(5, log))));
    scene.beat().await;
    scene.says("a transaction was refused: spendable balance").await;
    scene
        .waits("the alarm", async || {
            scene.site.ops("/readyz").await.1.contains("insufficient_funds")
        })
        .await;
    scene.proxies[0].always("broadcast_tx_sync", None);
    scene.settled().await;
    scene
        .waits("readiness", async || scene.site.ops("/readyz").await.0 == 200)
        .await;
    scene.ends().await;
}

#[tokio::test]
async fn a_transaction_that_runs_out_of_gas_is_split_and_given_more() {
    let setting = Setting {
        agents: 4,
        ..Setting::default()
    };
    let mut scene = Scene::with(setting).await;
    let log = "out of gas in location: txSize; gasWanted: 90000, gasUsed: 97078: out of gas";
    let before = scene.signed_so_far();
    scene.proxies[0].always("broadcast_tx_sync", Some(Fault::Instead(check_tx(11, log))));
    scene.beat().await;
    scene.signed(before).await;
    scene.says("a transaction was refused: out of gas").await;
    scene.signed(before + 1).await;
    scene.proxies[0].always("broadcast_tx_sync", None);
    scene.settled().await;
    scene.ends().await;
}

#[tokio::test]
async fn where_a_node_simulates_nothing_all_settles_by_fitted_gas_and_what_is_missing_is_named() {
    let setting = Setting {
        agents: 3,
        ..Setting::default()
    };
    let mut scene = Scene::prepare(setting).await;
    // As wasmd answers where grpc.enable and api.enable are off.
    let unknown = query_fails(6, "unknown query path: unknown request");
    scene.proxies[0].always(SIMULATE, Some(Fault::Instead(unknown)));
    scene.enrol().await;
    scene.says("simulates nothing, gas limits are fitted").await;
    for _ in 0..3 {
        scene.beat().await;
        scene.settled().await;
    }
    // So does an act of the operator key.
    let args = ["admin-token", "create", "--name", "o", "--role", "operator"];
    let (token, err, code) = run(&scene.site.home(), &scene.site.env(), &args);
    assert_eq!(code, 0, "{err}");
    let addr = scene.site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let (http, url) = (Client::new(), format!("http://{addr}/api/v1/admin"));
    let drain = http.post(format!("{url}/nodes/node-0002/drain"));
    let drain = drain.bearer_auth(token.trim()).json(&json!({ "reason": "disk" }));
    let drained = drain.send().await.unwrap();
    let (status, said) = (drained.status().as_u16(), drained.text().await.unwrap());
    assert_eq!(status, 200, "{said}");
    let state = scene.site.node("node-0002").await.state;
    assert!(
        matches!(state, NodeState::Draining | NodeState::Drained),
        "{state:?}"
    );
    // It works, and says what it works without.
    let (status, body) = scene.site.ops("/readyz").await;
    assert_eq!(status, 200, "{body}");
    assert!(
        body.contains("simulation_missing") && body.contains("grpc.enable"),
        "{body}"
    );
    let told = http.get(format!("{url}/status")).bearer_auth(token.trim());
    let told: Value = told.send().await.unwrap().json().await.unwrap();
    let notices = told["notices"].to_string();
    assert!(notices.contains("simulation_missing"), "{told}");
    // What was signed sufficed at once.
    for fault in [
        "nothing is signed now",
        "a batch is refused as it is",
        "transaction failed",
        "out of gas",
    ] {
        assert!(scene.logs.lines(fault).is_empty(), "{}", scene.logs.text());
    }
    scene.proxies[0].always(SIMULATE, None);
    scene.beat().await;
    scene.settled().await;
    scene
        .waits("the end of it", async || {
            !scene.site.ops("/readyz").await.1.contains("simulation_missing")
        })
        .await;
    scene.ends().await;
}
