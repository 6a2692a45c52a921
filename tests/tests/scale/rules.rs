//! What docs/protocol.md ("Lifecycle", "Health score") says of nodes and clusters, written anew: nothing here calls, or
//! was taken from, the code that the contract runs. Where that code walks from state to state, this says what
//! the state is at a time.

use std::collections::BTreeMap;

use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::{AggregateView, GpuCount, NodeView, StateCounts};

/// Seconds, as instantiated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thresholds {
    /// Silent for longer: STALE.
    pub(crate) timeout: u64,
    /// Silent for longer: OFFLINE.
    pub(crate) offline: u64,
}

/// The figures of one report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) time: u64,
    pub(crate) sequence: u32,
    pub(crate) status: HealthStatus,
    pub(crate) jobs: bool,
    pub(crate) cores: u32,
    pub(crate) memory_gb: u32,
    pub(crate) gpus: u32,
    pub(crate) storage_gb: u32,
    pub(crate) latency_us: u32,
    pub(crate) measurements: u8,
}

/// What is known of a node from what was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The last report; none: PENDING.
    pub(crate) said: Option<Said>,
    last_heartbeat: u64,
    /// The agent's own drain is in force.
    drains: bool,
    recoveries: u32,
    downtime: u64,
}

impl History {
    /// The state at that time, as far as silence alone decides: never DEREGISTERED.
    pub(crate) fn state(&self, now: u64, limits: Thresholds) -> NodeState {
        let Some(said) = self.said else {
            return NodeState::Pending;
        };
        let silence = now.saturating_sub(self.last_heartbeat);
        match (self.drains, said.jobs) {
            _ if silence > limits.offline => NodeState::Offline,
            (true, true) => NodeState::Draining,
            (true, false) => NodeState::Drained,
            _ if silence > limits.timeout => NodeState::Stale,
            _ => NodeState::Active,
        }
    }

    /// A report in a block of that time.
    pub(crate) fn hear(&mut self, said: Said, now: u64, limits: Thresholds) {
        let (before, silent_since) = (self.state(now, limits), self.last_heartbeat);
        self.last_heartbeat = silent_since.max(said.time.min(now));
        self.drains = match said.status {
            HealthStatus::Draining => true,
            HealthStatus::Healthy | HealthStatus::Degraded => false,
            // These say nothing about a drain, and being OFFLINE ended it.
            HealthStatus::Unhealthy | HealthStatus::Offline => self.drains && before != NodeState::Offline,
        };
        self.said = Some(said);
        if before == NodeState::Offline && self.state(now, limits) != NodeState::Offline {
            self.recoveries += 1;
            self.downtime += self.last_heartbeat - silent_since;
        }
    }

    /// Whether it ever came back from OFFLINE.
    pub(crate) fn recovered(&self) -> bool {
        self.recoveries > 0
    }

    /// What differs in the contract's answer at `now`, if the node was last stepped at `written`.
    pub(crate) fn differs(
        &self,
        view: &NodeView,
        now: u64,
        written: u64,
        limits: Thresholds,
    ) -> Option<String> {
        let said = self.said;
        let state = self.state(now, limits);
        let heard = said.map(|_| self.last_heartbeat);
        let figures = |pick: fn(Said) -> u32| said.map_or(0, pick);
        let pairs = [
            ("state", format!("{state:?}"), format!("{:?}", view.state)),
            (
                "recorded_state",
                format!("{:?}", self.state(written, limits)),
                format!("{:?}", view.recorded_state),
            ),
            (
                "health_status",
                format!("{:?}", said.map(|s| s.status.as_str())),
                format!("{:?}", view.health_status.as_deref()),
            ),
            (
                "last_heartbeat",
                format!("{heard:?}"),
                format!("{:?}", view.last_heartbeat.map(|t| t.0)),
            ),
            (
                "age_seconds",
                format!("{:?}", heard.map(|h| now - h)),
                format!("{:?}", view.age_seconds),
            ),
            (
                "sequence, cores, memory, GPUs, storage",
                format!(
                    "{:?}",
                    [
                        figures(|s| s.sequence),
                        figures(|s| s.cores),
                        figures(|s| s.memory_gb),
                        figures(|s| s.gpus),
                        figures(|s| s.storage_gb)
                    ]
                ),
                format!(
                    "{:?}",
                    [
                        view.sequence,
                        view.resources.cpu_cores,
                        view.resources.memory_gb,
                        view.resources.gpus,
                        view.resources.storage_gb
                    ]
                ),
            ),
            (
                "recovery_count, total_downtime_seconds",
                format!("{:?}", (self.recoveries, self.downtime)),
                format!("{:?}", (view.recovery_count, view.total_downtime_seconds)),
            ),
        ];
        pairs
            .into_iter()
            .find(|(_, expected, found)| expected != found)
            .map(|(what, expected, found)| {
                format!("{}: {what} should be {expected}, is {found}", view.node_id)
            })
    }

    /// Whether the mean latency is that of the report; while OFFLINE nobody promises one.
    pub(crate) fn latency_differs(&self, view: &NodeView) -> bool {
        let latency = self.said.map_or(0, |s| s.latency_us);
        view.recorded_state != NodeState::Offline
            && (view.avg_latency_us != latency || view.avg_latency_ms != (u64::from(latency) + 500) / 1_000)
    }
}

/// A cluster's sums from its nodes one by one, at that time.
pub(crate) fn recount<'a>(
    nodes: impl Iterator<Item = (&'a History, &'a str)>,
    cluster_active: bool,
    now: u64,
    limits: Thresholds,
) -> AggregateView {
    let mut states = StateCounts::default();
    let (mut total, mut schedulable, mut points, mut promised) = (0, 0, 0_u64, 0_u64);
    let (mut cores, mut memory, mut storage) = (0, 0, 0);
    let (mut weighted, mut weights) = (0_u64, 0_u64);
    let mut gpus: BTreeMap<&str, u64> = BTreeMap::new();
    for (node, gpu_type) in nodes {
        total += 1;
        let state = node.state(now, limits);
        *match state {
            NodeState::Pending => &mut states.pending,
            NodeState::Active => &mut states.active,
            NodeState::Stale => &mut states.stale,
            NodeState::Draining => &mut states.draining,
            NodeState::Drained => &mut states.drained,
            NodeState::Offline => &mut states.offline,
            NodeState::Deregistered => &mut states.deregistered,
        } += 1;
        promised += u64::from(state != NodeState::Pending);
        let Some(said) = node.said.filter(|_| state == NodeState::Active && cluster_active) else {
            continue;
        };
        points += match said.status {
            HealthStatus::Healthy => 1_000_000,
            HealthStatus::Degraded => 500_000,
            HealthStatus::Unhealthy | HealthStatus::Draining | HealthStatus::Offline => continue,
        };
        schedulable += 1;
        cores += u64::from(said.cores);
        memory += u64::from(said.memory_gb);
        storage += u64::from(said.storage_gb);
        weighted += u64::from(said.latency_us) * u64::from(said.measurements);
        weights += u64::from(said.measurements);
        if said.gpus > 0 {
            *gpus.entry(gpu_type).or_default() += u64::from(said.gpus);
        }
    }
    let mean = |unit: u64| {
        (2 * weighted + weights * unit)
            .checked_div(2 * weights * unit)
            .unwrap_or(0)
    };
    AggregateView {
        total_nodes: total,
        active_nodes: schedulable,
        states,
        available_cpu_cores: cores,
        available_memory_gb: memory,
        available_gpus: gpus.values().sum(),
        gpus_by_type: gpus
            .into_iter()
            .map(|(gpu_type, available)| GpuCount {
                gpu_type: gpu_type.to_owned(),
                available,
            })
            .collect(),
        available_storage_gb: storage,
        avg_cluster_latency_ms: mean(1_000),
        avg_cluster_latency_us: mean(1),
        health_score: points
            .checked_div(promised)
            .and_then(|s| u32::try_from(s).ok())
            .unwrap_or(0),
    }
}
