//! Sums of a cluster.

use hpc_schema::registry::{AggregateAnswer, AggregateView, GpuCount, StateCounts};

use super::words::block;
use super::{Lines, Text};

impl Text for AggregateAnswer {
    fn text(&self) -> String {
        let Self {
            cluster_id,
            recorded,
            recorded_at,
            effective,
            block: at,
        } = self;
        let mut lines = Lines::new();
        lines.line("cluster_id", cluster_id);
        match effective {
            Some(sums) => lines.block("effective", |l| aggregate(l, sums)),
            None => lines.line("effective", "not computed (more than 256 pages)"),
        };
        lines.line("recorded_at", recorded_at);
        lines.block("recorded", |l| aggregate(l, recorded));
        block(&mut lines, at);
        lines.finish()
    }
}

pub(super) fn aggregate(l: &mut Lines, sums: &AggregateView) {
    let AggregateView {
        total_nodes,
        active_nodes,
        states,
        available_cpu_cores,
        available_memory_gb,
        available_gpus,
        gpus_by_type,
        available_storage_gb,
        avg_cluster_latency_ms: _,
        avg_cluster_latency_us,
        health_score,
    } = sums;
    l.line("total_nodes", total_nodes)
        .line("active_nodes", active_nodes);
    let StateCounts {
        pending,
        active,
        stale,
        draining,
        drained,
        offline,
        deregistered,
    } = states;
    l.block("states", |l| {
        l.line("pending", pending)
            .line("active", active)
            .line("stale", stale);
        l.line("draining", draining).line("drained", drained);
        l.line("offline", offline).line("deregistered", deregistered);
    });
    l.line("available_cpu_cores", available_cpu_cores)
        .line("available_memory_gb", available_memory_gb);
    l.line("available_gpus", available_gpus);
    if !gpus_by_type.is_empty() {
        let gpu = |GpuCount { gpu_type, available }: &GpuCount| format!("{available} x {gpu_type}");
        l.list("gpus_by_type", gpus_by_type.iter().map(gpu));
    }
    l.line("available_storage_gb", available_storage_gb);
    let (whole, part) = (avg_cluster_latency_us / 1000, avg_cluster_latency_us % 1000);
    l.line("avg_cluster_latency", format!("{whole}.{part:03} ms"));
    l.line("health_score", format!("{health_score} of 1000000"));
}
