//! Nodes, and the jobs on them.

use hpc_schema::registry::{
    BlockRef, Drain, JobsOnRecord, LatencyOnRecord, NodeAnswer, NodeView, Resources, Totals,
};
use serde::Serialize;

use super::words::{block, jobs_status, millis, span, yes_no};
use super::{Lines, Text};

/// One node; in JSON its members stand at the top, beside `block`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NodeAt {
    #[serde(flatten)]
    node: NodeView,
    block: BlockRef,
}

impl From<NodeAnswer> for NodeAt {
    fn from(NodeAnswer { node, block }: NodeAnswer) -> Self {
        Self { node, block }
    }
}

impl Text for NodeAt {
    fn text(&self) -> String {
        let mut lines = Lines::new();
        // The first four lines are specification 000's, step 6 of onboarding.
        identity(&mut lines, &self.node);
        figures(&mut lines, &self.node);
        work(&mut lines, &self.node);
        record(&mut lines, &self.node);
        block(&mut lines, &self.block);
        lines.finish()
    }
}

fn identity(lines: &mut Lines, node: &NodeView) {
    let NodeView {
        node_id,
        cluster_id,
        state,
        recorded_state,
        last_heartbeat,
        age_seconds,
        active,
        ..
    } = node;
    lines
        .line("node_id", node_id)
        .line("cluster_id", cluster_id)
        .line("state", state);
    match last_heartbeat {
        Some(at) => lines.line("last_heartbeat", at),
        None => lines.line("last_heartbeat", "never"),
    };
    lines.maybe("age", age_seconds.map(span));
    lines
        .line("recorded_state", recorded_state)
        .line("schedulable", yes_no(*active));
    lines.line("health", node.health_status.as_deref().unwrap_or("unknown"));
}

fn figures(lines: &mut Lines, node: &NodeView) {
    let NodeView {
        resources,
        totals,
        avg_latency_us,
        latency_measurements,
        ..
    } = node;
    let Resources {
        cpu_cores,
        memory_gb,
        gpus,
        gpu_type,
        storage_gb,
    } = resources;
    lines.block("resources", |l| {
        l.line("cpu_cores", cpu_cores)
            .line("memory_gb", memory_gb)
            .line("gpus", gpus);
        l.maybe("gpu_type", gpu_type.as_deref())
            .line("storage_gb", storage_gb);
    });
    if let Some(Totals {
        cpu_cores,
        memory_gb,
        gpus,
        storage_gb,
    }) = totals
    {
        lines.block("totals", |l| {
            l.line("cpu_cores", cpu_cores)
                .line("memory_gb", memory_gb)
                .line("gpus", gpus);
            l.line("storage_gb", storage_gb);
        });
    }
    lines.line("avg_latency", millis(*avg_latency_us));
    if !latency_measurements.is_empty() {
        lines.list(
            "latency_measurements",
            latency_measurements.iter().map(measurement),
        );
    }
}

fn measurement(m: &LatencyOnRecord) -> String {
    let LatencyOnRecord {
        target_node_id,
        latency_us,
        packet_loss_percent,
        measured_at,
    } = m;
    format!(
        "{target_node_id} {} loss {packet_loss_percent}% at {measured_at}",
        millis(*latency_us)
    )
}

fn work(lines: &mut Lines, node: &NodeView) {
    let JobsOnRecord {
        running,
        count,
        active_job_ids,
        status,
    } = &node.jobs;
    lines.block("jobs", |l| {
        l.line("running", yes_no(*running))
            .line("count", count)
            .line("status", jobs_status(*status));
        if !active_job_ids.is_empty() {
            l.list("active_job_ids", active_job_ids);
        }
    });
    if let Some(Drain {
        ordered_by,
        ordered_at,
        until,
        reason,
    }) = &node.drain
    {
        lines.block("drain", |l| {
            l.line("ordered_by", ordered_by)
                .line("ordered_at", ordered_at)
                .line("until", until);
            l.maybe("reason", reason.as_deref());
        });
    }
}

fn record(lines: &mut Lines, node: &NodeView) {
    let NodeView {
        provider_address,
        agent_pubkey,
        agent_version,
        hostname,
        hardware_fingerprint,
        ..
    } = node;
    lines
        .line("provider_address", provider_address)
        .line("agent_pubkey", agent_pubkey);
    lines
        .maybe("agent_version", agent_version.as_deref())
        .maybe("hostname", hostname.as_deref());
    lines.maybe("hardware_fingerprint", hardware_fingerprint.as_deref());
    let NodeView {
        registered_at,
        epoch,
        sequence,
        recovery_count,
        total_downtime_seconds,
        page,
        slot,
        ..
    } = node;
    lines
        .line("registered_at", registered_at)
        .line("epoch", epoch)
        .line("sequence", sequence);
    lines
        .line("recovery_count", recovery_count)
        .line("total_downtime", span(*total_downtime_seconds));
    lines.line("page", page).line("slot", slot);
}
