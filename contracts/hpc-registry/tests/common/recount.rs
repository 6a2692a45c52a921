//! The sums of a cluster, counted anew from records: plain loops, nothing of the code that keeps them.

use std::collections::BTreeMap;

use hpc_schema::node::{HealthStatus, HotRecord, NodeState};
use hpc_schema::registry::{AggregateView, GpuCount, StateCounts};

/// Sums of these nodes; `gpu_type` is that of the section on record. GPU types come in order of their names.
pub fn recount(active: bool, nodes: &[(HotRecord, Option<String>)]) -> AggregateView {
    let count = |state| nodes.iter().filter(|(r, _)| r.state == state).count() as u32;
    let takes_work: Vec<_> = nodes
        .iter()
        .filter(|(r, _)| {
            active
                && r.state == NodeState::Active
                && matches!(r.status, Some(HealthStatus::Healthy | HealthStatus::Degraded))
        })
        .collect();
    let sum = |of: fn(&HotRecord) -> u64| takes_work.iter().map(|(r, _)| of(r)).sum::<u64>();
    let mut gpus: BTreeMap<String, u64> = BTreeMap::new();
    for (record, gpu_type) in &takes_work {
        if record.gpus > 0 {
            let name = gpu_type.clone().unwrap_or_else(|| "unknown".to_owned());
            *gpus.entry(name).or_default() += u64::from(record.gpus);
        }
    }
    let weight = sum(|r| u64::from(r.measurements));
    let latency = sum(|r| u64::from(r.latency_us) * u64::from(r.measurements));
    let mean = |unit: u64| match weight * unit {
        0 => 0,
        by => (latency * 2 + by) / (by * 2),
    };
    let total = nodes.len() as u32 - count(NodeState::Deregistered);
    let promised = u64::from(total - count(NodeState::Pending));
    let points = sum(|r| match r.status {
        Some(HealthStatus::Healthy) => 1_000_000,
        _ => 500_000,
    });
    AggregateView {
        total_nodes: total,
        active_nodes: takes_work.len() as u32,
        states: StateCounts {
            pending: count(NodeState::Pending),
            active: count(NodeState::Active),
            stale: count(NodeState::Stale),
            draining: count(NodeState::Draining),
            drained: count(NodeState::Drained),
            offline: count(NodeState::Offline),
            deregistered: count(NodeState::Deregistered),
        },
        available_cpu_cores: sum(|r| u64::from(r.cores)),
        available_memory_gb: sum(|r| u64::from(r.memory_gb)),
        available_gpus: gpus.values().sum(),
        gpus_by_type: gpus
            .into_iter()
            .map(|(gpu_type, available)| GpuCount { gpu_type, available })
            .collect(),
        available_storage_gb: sum(|r| u64::from(r.storage_gb)),
        avg_cluster_latency_ms: mean(1_000),
        avg_cluster_latency_us: mean(1),
        health_score: points.checked_div(promised).unwrap_or(0) as u32,
    }
}

/// The contract's answer with its GPU types in order of their names.
pub fn by_name(mut view: AggregateView) -> AggregateView {
    view.gpus_by_type.sort_by(|a, b| a.gpu_type.cmp(&b.gpu_type));
    view
}
