//! The contract's events, while the real process is killed again and again: none is missed, none is there twice.

use std::time::Duration;

use hpc_chain::registry::Told;
use hpc_schema::registry::{Event, ExecuteMsg};
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use virtengine_provider::events::{NodeEvent, events_of, followed};
use virtengine_provider::fault;
use virtengine_provider::store::Store;

use crate::agent::Agent;
use crate::process::Process;
use crate::site::{Site, cluster, eventually};

/// What the chain has of a node since `from`, as the daemon should have it, oldest first.
async fn on_chain(site: &Site, node: &str, from: u64) -> Vec<(u64, Value)> {
    let tip = site.devnet.height().unwrap();
    let told = site.client.events_in_index(from, tip, false).await.unwrap();
    let of_node = |(height, event): (u64, Event)| {
        let mut value: serde_json::Map<String, Value> = event
            .attributes()
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.into()))
            .collect();
        value.insert("type".into(), event.ty().into());
        (value.get("node_id").and_then(Value::as_str) == Some(node)).then_some((height, value.into()))
    };
    let each = |told: Told| {
        let events = told.event.unwrap().of_each_node();
        events.into_iter().map(move |event| (told.height, event))
    };
    told.into_iter().flat_map(each).filter_map(of_node).collect()
}

/// What the daemon has, oldest first.
async fn in_store(store: &Store, node: &str) -> Vec<(u64, Value)> {
    let events = events_of(store.reader(), &cluster(), &node.parse().unwrap(), 10_000).await;
    let pair = |e: NodeEvent| (e.height, e.event);
    events.unwrap().into_iter().rev().map(pair).collect()
}

/// A drain and its end: four events or more.
async fn drain_and_resume(site: &Site, node: &str) {
    let (cluster_id, node_id) = (Some(cluster()), node.parse().unwrap());
    site.owner_sends(&ExecuteMsg::DrainNode {
        cluster_id: cluster_id.clone(),
        node_id,
        reason: None,
        until: None,
    })
    .await;
    let node_id = node.parse().unwrap();
    site.owner_sends(&ExecuteMsg::ResumeNode { cluster_id, node_id })
        .await;
}

/// Everything up to the newest block is in the store, each event once and in order.
async fn complete(site: &Site, store: &Store, node: &str, from: u64) {
    let until = site.devnet.height().unwrap();
    eventually("the newest block", async || {
        followed(store.reader())
            .await
            .unwrap()
            .is_some_and(|at| at >= until)
    })
    .await;
    let wanted = on_chain(site, node, from).await;
    eventually(&format!("{wanted:#?}"), async || {
        in_store(store, node).await == wanted
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_again_and_again_misses_no_event_and_has_none_twice() {
    let runs: u64 = std::env::var("HPC_TEST_RUNS").map_or(3, |n| n.parse().unwrap());
    let mut site = Site::start().await;
    let from = site.devnet.height().unwrap();
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let mut random = rand::rngs::StdRng::seed_from_u64(5);
    for run in 0..runs {
        let step = fault::ASIDE[usize::try_from(run).unwrap() % 2];
        let nth = random.random_range(1..20);
        let mut process = Process::start(&site, Some(&format!("{step}:{nth}")));
        drain_and_resume(&site, &agent.node).await;
        eventually("its death", async || process.is_dead()).await;
        // Nobody follows meanwhile.
        drain_and_resume(&site, &agent.node).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
    }
    let _process = Process::start(&site, None);
    drain_and_resume(&site, &agent.node).await;
    let store = site.store().await;
    complete(&site, &store, &agent.node, from).await;
    let events = in_store(&store, &agent.node).await;
    assert!(events.len() >= 4 * usize::try_from(runs).unwrap(), "{events:#?}");
}
