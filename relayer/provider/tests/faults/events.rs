//! The contract's events, whatever the endpoint does: none is missed, none is there twice. And what is done with the old.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_chain::registry::Told;
use hpc_schema::node::NodeState;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::time::{Rfc3339, UnixSeconds};
use virtengine_provider::daemon::load_key;
use virtengine_provider::events::{events_of, followed};
use virtengine_provider::home::Home;
use virtengine_provider::store::Store;

use crate::agent::Agent;
use crate::proxy::{Fault, error};
use crate::scene::{Scene, Setting};
use crate::site::{CLUSTER, Site, cluster, eventually};

async fn drain_and_resume(site: &Site, node: &str) {
    let cluster_id = Some(cluster());
    site.owner_sends(&ExecuteMsg::DrainNode {
        cluster_id: cluster_id.clone(),
        node_id: node.parse().unwrap(),
        reason: None,
        until: None,
    })
    .await;
    let node_id = node.parse().unwrap();
    site.owner_sends(&ExecuteMsg::ResumeNode { cluster_id, node_id })
        .await;
}

/// Heights and types of the events of a node, as the chain has them from `from` on.
async fn on_chain(site: &Site, node: &str, from: u64) -> Vec<(u64, String)> {
    let tip = site.devnet.height().unwrap();
    let told = site.client.events_in_index(from, tip, false).await.unwrap();
    let of_node = |told: Told| {
        let event = told.event.unwrap();
        let ours = event
            .attributes()
            .iter()
            .any(|(k, v)| *k == "node_id" && v == node);
        ours.then(|| (told.height, event.ty().to_owned()))
    };
    told.into_iter().filter_map(of_node).collect()
}

async fn in_store(store: &Store, node: &str) -> Vec<(u64, String)> {
    let events = events_of(store.reader(), &cluster(), &node.parse().unwrap(), 10_000)
        .await
        .unwrap();
    let pair =
        |e: virtengine_provider::events::NodeEvent| (e.height, e.event["type"].as_str().unwrap().to_owned());
    events.into_iter().rev().map(pair).collect()
}

/// Whether the daemon has everything up to the chain's newest block.
async fn complete(scene: &Scene, store: &Store, from: u64) {
    let (site, node) = (&scene.site, scene.agents[0].node.as_str());
    let until = site.devnet.height().unwrap();
    scene
        .waits("the newest block", async || {
            followed(store.reader())
                .await
                .unwrap()
                .is_some_and(|at| at >= until)
        })
        .await;
    assert_eq!(in_store(store, node).await, on_chain(site, node, from).await);
}

#[tokio::test]
async fn after_any_outage_every_event_is_there_once() {
    let mut scene = Scene::prepare(Setting::default()).await;
    let store = scene.site.store().await;
    scene
        .waits("the first look", async || {
            followed(store.reader()).await.unwrap().is_some()
        })
        .await;
    let from = followed(store.reader()).await.unwrap().unwrap() + 1;
    scene.enrol().await;
    let node = scene.agents[0].node.clone();
    let results = "block_results";
    complete(&scene, &store, from).await;

    // Endpoints that break off, that lie silent, and that say nothing sensible.
    for fault in [Fault::ResetBefore, Fault::Swallow, Fault::Instead(error("busy"))] {
        scene.proxies[0].always(results, Some(fault));
        drain_and_resume(&scene.site, &node).await;
        scene.sleep(300).await;
        scene.proxies[0].always(results, None);
        complete(&scene, &store, from).await;
    }

    // The daemon itself is down, for more blocks than one turn takes.
    scene.site.stop_daemon().await;
    drain_and_resume(&scene.site, &node).await;
    let down = scene.site.devnet.height().unwrap();
    scene
        .waits("a hundred blocks", async || {
            scene.site.devnet.height().unwrap() > down + 100
        })
        .await;
    drain_and_resume(&scene.site, &node).await;
    scene.site.start_with(scene.config.clone()).await;
    complete(&scene, &store, from).await;

    // The blocks have been pruned meanwhile.
    scene.site.stop_daemon().await;
    drain_and_resume(&scene.site, &node).await;
    let gone = error("height 7 is not available, lowest height is 1000");
    scene.proxies[0].always(results, Some(Fault::Instead(gone)));
    scene.site.start_with(scene.config.clone()).await;
    scene
        .says("their events were read from the index of transactions")
        .await;
    scene.proxies[0].always(results, None);
    complete(&scene, &store, from).await;
    assert!(in_store(&store, &node).await.len() >= 12);
    store.close().await;
    scene.beat().await;
    scene.ends().await;
}

/// Registers a node as an operator does who has its key on paper; long ago, by the chain's time.
async fn register_by_hand(site: &Site, agent: &Agent) {
    let operator = load_key(&Home::new(site.home()), "operator").unwrap();
    let time = UnixSeconds(site.devnet.block_time_nanos().unwrap() / 1_000_000_000);
    let node_identity = NodeIdentity {
        node_id: agent.node.parse().unwrap(),
        cluster_id: CLUSTER.parse().unwrap(),
        provider_address: site.owner.address("wasm").unwrap(),
        agent_pubkey: *agent.seed.public(),
        hostname: None,
        hardware_fingerprint: None,
        registration_nonce: STANDARD.encode([3; 32]),
        registration_timestamp: Rfc3339::from_unix(time.0, 0).unwrap(),
    };
    let signature = operator
        .sign_registration("wasm", crate::site::CHAIN_ID, &site.contract, &node_identity)
        .await
        .unwrap();
    site.owner_sends(&ExecuteMsg::RegisterNode {
        node_identity,
        provider_signature: STANDARD.encode(signature),
        provider_pubkey: STANDARD.encode(operator.public_key()),
        rotation_signature: None,
    })
    .await;
}

#[tokio::test]
async fn a_node_that_has_been_deregistered_for_the_retention_is_pruned() {
    // The retention at its shortest: a day, and a turn of ten minutes at most.
    let setting = Setting {
        chain: |c| c.seconds_behind = 87_500,
        config: |c| c.chain.clusters = vec![cluster()],
        ..Setting::default()
    };
    let scene = Scene::prepare(setting).await;
    let site = &scene.site;
    let params = serde_json::json!({ "update_params": { "params": { "retention": 86_400 } } });
    site.owner_sends(&serde_json::from_value(params).unwrap()).await;
    let agent = &scene.agents[0];
    register_by_hand(site, agent).await;
    site.owner_sends(&ExecuteMsg::DeregisterNode {
        cluster_id: Some(cluster()),
        node_id: agent.node.parse().unwrap(),
    })
    .await;
    assert_eq!(
        site.node(&agent.node).await.recorded_state,
        NodeState::Deregistered
    );
    let store = site.store().await;
    scene
        .waits("its events", async || {
            in_store(&store, &agent.node).await.len() >= 3
        })
        .await;
    site.devnet.set_time(virtengine_provider::clock::now().0);
    eventually("that it is gone", async || {
        let asked = site
            .client
            .node(Some(cluster()), agent.node.parse().unwrap())
            .await;
        asked.is_err()
    })
    .await;
    scene.says("kind=\"prune\"").await;
    scene
        .waits("the last event", async || {
            let events = in_store(&store, &agent.node).await;
            events.last().is_some_and(|(_, ty)| ty == "hpc_node_removed")
        })
        .await;
    store.close().await;
}
