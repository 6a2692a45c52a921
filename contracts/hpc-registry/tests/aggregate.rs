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
