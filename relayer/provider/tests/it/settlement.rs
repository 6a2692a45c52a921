use std::time::Duration;

use hpc_schema::node::NodeState;
use hpc_schema::registry::{ExecuteMsg, ParamsUpdate};
use serde_json::Value;
use virtengine_provider::clock;
use virtengine_provider::config::Span;

use crate::agent::Agent;
use crate::site::{Site, cluster, eventually};

/// The node as `node show` has it.
pub(crate) fn shown(site: &Site, node: &str) -> Value {
    let (out, err, code) = site.run(&["node", "show", node, "-o", "json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_chain_stands_still_the_newest_report_waits_and_goes_on_when_it_moves() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    site.wait_sequence(&agent.node, 1).await;
    site.devnet.halt();
    tokio::time::sleep(Duration::from_millis(500)).await;
    for sequence in 2..=20 {
        assert!(agent.beat(&client, &site, sequence).await.accepted);
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(site.node(&agent.node).await.sequence, 1);
    site.devnet.resume();
    site.wait_sequence(&agent.node, 20).await;
    // Every accepted report has an end on record, alone or as part of the one that replaced it.
    let mut accounted = 0;
    eventually("the records", async || {
        let node = shown(&site, &agent.node);
        let ends = node["reports"].as_array().unwrap();
        assert!(ends.iter().all(|e| e["ended"] == "on_chain"), "{node}");
        accounted = ends
            .iter()
            .map(|e| 1 + e["superseded_count"].as_u64().unwrap())
            .sum();
        accounted == 20
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_chain_the_daemon_starts_accepts_spools_and_says_why_it_is_not_ready() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let mut config = site.config();
    // A port where nobody listens.
    config.chain.rpc = vec!["http://127.0.0.1:9".into()];
    config.chain.timeout = Span::millis(500);
    site.start_with(config).await;
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    eventually("the trouble", async || {
        let (status, body) = site.ops("/readyz").await;
        assert_eq!(status, 503, "{body}");
        body.contains("chain_unreachable")
    })
    .await;
    assert_eq!(site.ops("/healthz").await.0, 200);
    let metrics = site.ops("/metrics").await.1;
    assert!(
        metrics.contains("heartbeats_total{result=\"accepted\"} 1"),
        "{metrics}"
    );
    site.stop_daemon().await;
    // With the chain it goes out, though the agent says nothing more.
    site.start_daemon().await;
    site.wait_sequence(&agent.node, 1).await;
    eventually("readiness", async || site.ops("/readyz").await.0 == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_page_travel_in_one_transaction() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.batch.submit_interval = Span::seconds(3);
    site.start_with(config).await;
    let mut agents = Vec::new();
    for i in 0..12 {
        let agent = Agent::enrolled(&site, &format!("node-{i:04}")).await;
        let client = agent.client(&site);
        agents.push((agent, client));
    }
    let mut metrics = String::new();
    let count = |metrics: &str, line: &str| {
        let line = metrics.lines().find(|l| l.starts_with(line)).unwrap_or_default();
        line.rsplit(' ')
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let mut before = 0;
    // The first ones open the connections, which takes as long as it takes.
    for sequence in 1..=2 {
        for (agent, client) in &agents {
            assert!(agent.beat(client, &site, sequence).await.accepted);
        }
        for (agent, _) in &agents {
            site.wait_sequence(&agent.node, sequence).await;
        }
        eventually("all twelve counted", async || {
            metrics = site.ops("/metrics").await.1;
            count(&metrics, "virtengine_provider_reports_total{end=\"on_chain\"") == 12 * u64::from(sequence)
        })
        .await;
        let batches = count(
            &metrics,
            "virtengine_provider_transactions_total{kind=\"reports\",end=\"included\"}",
        );
        let new = batches - before;
        assert!(
            new >= 1 && (sequence == 1 || new <= 3),
            "{new} batches\n{metrics}"
        );
        before = batches;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_falls_silent_is_swept_to_stale_and_a_report_brings_it_back() {
    let site = Site::start().await;
    let params = ParamsUpdate {
        heartbeat_timeout: Some(60),
        ..ParamsUpdate::default()
    };
    site.owner_sends(&ExecuteMsg::UpdateParams { params }).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    site.wait_sequence(&agent.node, 1).await;
    // As far ahead as settlement takes a chain's clock for sound; the rest of the minute passes.
    let chain_now = site.devnet.block_time_nanos().unwrap() / 1_000_000_000;
    site.devnet.set_time(chain_now + 57);
    eventually("the sweep", async || {
        site.node(&agent.node).await.recorded_state == NodeState::Stale
    })
    .await;
    eventually("the sweep is counted", async || {
        site.ops("/metrics")
            .await
            .1
            .contains("kind=\"sweep\",end=\"included\"")
    })
    .await;
    assert!(agent.beat(&client, &site, 2).await.accepted);
    eventually("the node is back", async || {
        let node = site.node(&agent.node).await;
        node.sequence == 2 && node.recorded_state == NodeState::Active
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_too_old_for_the_chain_ends_with_its_reason() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let body = agent.heartbeat_text(1, clock::now_ms() - 295_000);
    assert!(
        crate::agent::answer(agent.send_text(&client, &site, body).await)
            .await
            .accepted
    );
    eventually("the end", async || {
        let node = shown(&site, &agent.node);
        node["reports"][0]["code"] == "timestamp_expired"
            && node["last_refusal"]["code"] == "timestamp_expired"
    })
    .await;
    assert_eq!(site.node(&agent.node).await.sequence, 0);
    // The agent is told with its next heartbeat, and no more once a later report counts.
    let told = agent.beat(&client, &site, 2).await;
    assert!(told.accepted, "{told:?}");
    let notice = told.errors.iter().find(|n| n.code == "timestamp_expired");
    assert!(
        notice.unwrap().message.contains("report 1 was accepted"),
        "{told:?}"
    );
    site.wait_sequence(&agent.node, 2).await;
    let mut sequence = 2;
    eventually("an answer without it", async || {
        sequence += 1;
        let told = agent.beat(&client, &site, sequence).await;
        told.accepted && told.errors.is_empty()
    })
    .await;
    eventually("what was refused is over for the operator too", async || {
        sequence += 1;
        agent.beat(&client, &site, sequence).await;
        shown(&site, &agent.node)["last_refusal"].is_null()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_told_that_its_cluster_is_not_active() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let told = agent.beat(&client, &site, 1).await;
    assert!(told.accepted && told.errors.is_empty(), "{told:?}");
    let cluster_id = cluster();
    site.owner_sends(&ExecuteMsg::DeactivateCluster { cluster_id })
        .await;
    let mut sequence = 1;
    eventually("the notice", async || {
        sequence += 1;
        let told = agent.beat(&client, &site, sequence).await;
        told.accepted && told.errors.iter().any(|n| n.code == "cluster_inactive")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_mempool_forgets_is_sent_again() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    site.devnet.halt();
    assert!(agent.beat(&client, &site, 1).await.accepted);
    eventually("the transaction in the mempool", async || {
        // Signing needs a live chain; it was live a moment ago.
        site.devnet.mempool_len() > 0
    })
    .await;
    site.devnet.clear_mempool();
    site.devnet.resume();
    site.wait_sequence(&agent.node, 1).await;
}
