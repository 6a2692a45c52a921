//! What the sums of a cluster mean; that they equal a recount after any history stands in `history/`.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

mod common;

use common::*;
use hpc_schema::node::HealthStatus;
use hpc_schema::report::Figures;

/// Fault 17: totals were summed, latencies truncated, the mean and the score absent.
#[test]
fn sums_are_of_what_is_available_latencies_round_half_up_and_the_score_is_there() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 2);
    for (agent, cores, latency, measurements, status) in [
        (0, 10, 999, 1, HealthStatus::Healthy),
        (1, 20, 2_001, 1, HealthStatus::Degraded),
    ] {
        let agent: &mut Agent = &mut agents[agent];
        agent.sequence += 1;
        let figures = Figures {
            cores_available: cores,
            memory_gb_available: 5,
            avg_cluster_latency_us: latency,
            measurement_count: measurements,
            ..Figures::default()
        };
        let report = agent.with_figures(chain.now(), status, &figures);
        chain.submit(vec![(agent, report)]);
    }
    // 999 µs is 1 ms, not 0.
    assert_eq!(chain.node("node-0000").avg_latency_ms, 1);
    let sums = chain.aggregate(CLUSTER).recorded;
    assert_eq!((sums.available_cpu_cores, sums.available_memory_gb), (30, 10));
    assert_eq!(
        (sums.avg_cluster_latency_us, sums.avg_cluster_latency_ms),
        (1_500, 2)
    );
    assert_eq!(sums.health_score, 750_000);
}

/// A cluster tells 255 types apart; what comes after them is offered all the same.
#[test]
fn gpus_of_a_type_beyond_the_255th_count_as_unknown_and_are_found_by_name() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 2);
    let types: Vec<u8> = (0..255)
        .flat_map(|n| [&[3][..], format!("{n:03}").as_bytes()].concat())
        .collect();
    chain.deps.storage.map.insert(vec![0x11, 0, 0, 0, 0], types);
    for (agent, gpu_type) in agents.iter_mut().zip(["254", "the 256th"]) {
        agent.section.gpu_type = gpu_type.to_owned();
        assert_eq!(chain.beat(agent).accepted, 1);
    }
    let sums = chain.aggregate(CLUSTER).recorded;
    let shown: Vec<_> = sums
        .gpus_by_type
        .iter()
        .map(|g| (g.gpu_type.as_str(), g.available))
        .collect();
    assert_eq!(shown, [("unknown", 2), ("254", 2)]);
    assert_eq!(sums.available_gpus, 4);
    assert_eq!(
        chain.node("node-0001").resources.gpu_type.as_deref(),
        Some("the 256th")
    );
    let found: hpc_schema::registry::NodesAnswer = chain
        .query(serde_json::json!({"nodes": {"filter": {"gpu_type": "the 256th"}}}))
        .unwrap();
    assert_eq!(found.nodes.len(), 1);
    assert_eq!(found.nodes[0].node_id.as_str(), "node-0001");
}
