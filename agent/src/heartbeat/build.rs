use std::num::NonZeroU32;
use std::time::Instant;

use hpc_schema::heartbeat::{
    Capacity, FixedPoint6, Health, HealthStatus, Heartbeat, Jobs, Label, Latency, LatencyMeasurement,
    Percent, Services, SlurmState, Text,
};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::Rfc3339;

use crate::health::{Finding, Severity};
use crate::probe::errors::Errors;
use crate::probe::gpu::GpuReport;
use crate::probe::latency::{Measured, average as average_latency};
use crate::probe::slurm::Answer;
use crate::sample::Figures;

/// What a heartbeat holds besides figures.
#[derive(Debug)]
pub struct Context<'a> {
    /// The node.
    pub node_id: &'a NodeId,
    /// Its cluster.
    pub cluster_id: &'a ClusterId,
    /// Its number.
    pub sequence: NonZeroU32,
    /// Wall clock.
    pub timestamp: Rfc3339,
    /// Capacity.
    pub capacity: Capacity,
    /// The judgement.
    pub status: HealthStatus,
    /// Its reasons.
    pub findings: &'a [Finding],
    /// Work.
    pub jobs: Option<Jobs>,
    /// Round trip of the last heartbeat, in microseconds.
    pub gateway_latency_us: Option<u64>,
    /// Round trip from the gateway to the chain, in milliseconds.
    pub chain_latency_ms: Option<u64>,
}

/// The payload: what is fresh, and nothing else.
#[must_use]
pub fn build(context: Context<'_>, figures: &Figures, now: Instant) -> Heartbeat {
    let percent = |p: Option<u8>| p.map(|p| Percent::saturating(u64::from(p)));
    let load = figures.load.fresh(now);
    let average =
        |pick: fn(&crate::probe::host::Load) -> u64| load.map(|l| FixedPoint6::from_millionths(pick(l)));
    let peers = figures.peers.fresh(now).map_or(&[][..], Vec::as_slice);
    let latency = Latency {
        measurements: peers.iter().filter_map(measurement).collect(),
        gateway_latency_us: context.gateway_latency_us,
        chain_latency_ms: context.chain_latency_ms,
        avg_cluster_latency_us: average_latency(peers),
    };
    let gpus = figures.gpus.fresh(now);
    let errors = figures.errors.fresh(now);
    let counted = errors.and_then(Errors::whole);
    // What makes the node less than healthy says more than the last line of the kernel's log.
    let grave = |f: &&Finding| f.kind.severity > Severity::Notice;
    let finding = context.findings.first().filter(grave).map(|f| f.message.as_str());
    let last_error = finding.or_else(|| errors.and_then(|e| Some(e.last.as_ref()?.text.as_str())));
    let measured = latency.gateway_latency_us.is_some()
        || latency.chain_latency_ms.is_some()
        || !latency.measurements.is_empty();
    Heartbeat {
        node_id: context.node_id.clone(),
        cluster_id: context.cluster_id.clone(),
        sequence_number: context.sequence,
        timestamp: context.timestamp,
        agent_version: Label::lossy(env!("CARGO_PKG_VERSION")),
        capacity: context.capacity,
        health: Health {
            uptime_seconds: figures.uptime.fresh(now).copied(),
            load_average_1m: average(|l| l.one),
            load_average_5m: average(|l| l.five),
            load_average_15m: average(|l| l.fifteen),
            cpu_utilization_percent: percent(figures.cpu.fresh(now).copied()),
            memory_utilization_percent: percent(figures.memory_use(now)),
            disk_io_utilization_percent: percent(figures.disk.fresh(now).map(|d| d.percent)),
            network_utilization_percent: percent(figures.busiest_link(now)),
            temperature_celsius: figures.temperature.fresh(now).copied(),
            gpu_utilization_percent: percent(gpus.and_then(GpuReport::utilization)),
            gpu_memory_utilization_percent: percent(gpus.and_then(GpuReport::memory_utilization)),
            gpu_temperature_celsius: gpus.and_then(GpuReport::temperature),
            error_count_24h: counted.map(|e| e.errors),
            warning_count_24h: counted.map(|e| e.warnings),
            last_error_message: last_error.and_then(Text::cut),
            slurm_state: match figures.slurm.fresh(now) {
                Some(Answer::Said(node)) => Some(node.state),
                Some(Answer::Silent) => Some(SlurmState::Unknown),
                Some(Answer::NotHere) | None => None,
            },
            ..Health::of(context.status)
        },
        latency: measured.then_some(latency),
        jobs: context.jobs,
        services: services(figures, now),
    }
}

/// Where slurmd's program is not found, the controller knows the version of the one that runs. A process's own word for where
/// its program lies would be anybody's.
#[must_use]
pub fn services(figures: &Figures, now: Instant) -> Option<Services> {
    let mut services = figures.services.fresh(now)?.services.clone();
    if services.slurmd_version.is_none()
        && let Some(Answer::Said(node)) = figures.slurm.fresh(now)
    {
        services.slurmd_version = node.version.as_deref().and_then(Label::lossy);
    }
    Some(services)
}

fn measurement(m: &Measured) -> Option<LatencyMeasurement> {
    Some(LatencyMeasurement {
        target_node_id: m.peer.node_id.clone(),
        latency_us: m.latency_us,
        packet_loss_percent: Percent::saturating(u64::from(m.loss_percent)),
        measured_at: Rfc3339::from_unix(m.measured_at, 0).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::memory::Memory;
    use crate::probe::network::NetworkUse;
    use crate::probe::services::ServicesFound;
    use crate::probe::slurm::SlurmNode;

    fn peer(name: &str, latency_us: Option<u64>, loss_percent: u8, measured_at: u64) -> Measured {
        let peer = serde_json::json!({
            "node_id": name, "address": "192.0.2.1", "port": 9000, "public_key": "WGZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY=",
        });
        Measured {
            peer: serde_json::from_value(peer).unwrap(),
            latency_us,
            loss_percent,
            measured_at,
        }
    }

    fn payload(figures: &Figures, now: Instant) -> serde_json::Value {
        let (node_id, cluster_id) = ("node-0001".parse().unwrap(), "hpc-cluster-1".parse().unwrap());
        let context = Context {
            node_id: &node_id,
            cluster_id: &cluster_id,
            sequence: NonZeroU32::MIN,
            timestamp: Rfc3339::from_unix(1_010, 0).unwrap(),
            capacity: Capacity {
                cpu_cores_total: 1,
                cpu_cores_available: 1,
                cpu_cores_allocated: None,
                memory_gb_total: 1,
                memory_gb_available: 1,
                memory_gb_allocated: None,
                gpus_total: None,
                gpus_available: None,
                gpus_allocated: None,
                gpu_type: None,
                storage_gb_total: None,
                storage_gb_available: None,
                storage_gb_allocated: None,
            },
            status: HealthStatus::Healthy,
            findings: &[],
            jobs: None,
            gateway_latency_us: None,
            chain_latency_ms: None,
        };
        serde_json::to_value(build(context, figures, now)).unwrap()
    }

    #[test]
    fn use_of_memory_and_links_is_absent_once_it_is_older_than_use_may_be() {
        let mut figures = Figures::default();
        let began = Instant::now();
        let memory = Memory {
            total: 100 << 30,
            available: 25 << 30,
        };
        figures.memory.set(Some(memory), began);
        let device = "mlx5_0/1".to_owned();
        figures
            .fabric
            .set(Some(NetworkUse { device, percent: 93 }), began);
        let health = |seconds| {
            let health = payload(&figures, began + std::time::Duration::from_secs(seconds))["health"].clone();
            (
                health["memory_utilization_percent"].as_u64(),
                health["network_utilization_percent"].as_u64(),
            )
        };
        assert_eq!(health(30), (Some(75), Some(93)));
        assert_eq!(health(31), (None, None));
        // As capacity it may be a minute old.
        assert!(
            figures
                .memory
                .fresh(began + std::time::Duration::from_secs(31))
                .is_some()
        );
    }

    #[test]
    fn slurmds_version_is_the_controllers_word_where_its_program_is_not_found() {
        let now = Instant::now();
        let version = |found: Option<&str>, said: Option<&str>| {
            let mut figures = Figures::default();
            let services = Services {
                slurmd_running: Some(true),
                slurmd_version: found.and_then(Label::lossy),
                ..Services::default()
            };
            let munge_version = None;
            figures.services.set(
                Some(ServicesFound {
                    services,
                    munge_version,
                }),
                now,
            );
            let node = SlurmNode {
                version: said.map(str::to_owned),
                ..SlurmNode::idle()
            };
            figures.slurm.set(Some(Answer::Said(node)), now);
            let payload = payload(&figures, now);
            payload["services"]["slurmd_version"].as_str().map(str::to_owned)
        };
        assert_eq!(version(None, Some("24.05.4")).as_deref(), Some("24.05.4"));
        assert_eq!(
            version(Some("23.11.1"), Some("24.05.4")).as_deref(),
            Some("23.11.1")
        );
        assert_eq!(version(None, None), None);
    }

    #[test]
    fn errors_and_warnings_are_absent_while_part_of_them_cannot_be_read() {
        let began = Instant::now();
        let counts = |errors: Errors| {
            let mut figures = Figures::default();
            figures.errors.set(Some(errors), began);
            let health = payload(&figures, began)["health"].clone();
            (
                health["error_count_24h"].as_u64(),
                health["warning_count_24h"].as_u64(),
            )
        };
        let whole = Errors {
            errors: 3,
            warnings: 4,
            ..Errors::default()
        };
        assert_eq!(counts(whole.clone()), (Some(3), Some(4)));
        let without_journal = Some("exit 1".into());
        assert_eq!(
            counts(Errors {
                without_journal,
                ..whole.clone()
            }),
            (None, None)
        );
        let without_kernel = true;
        assert_eq!(
            counts(Errors {
                without_kernel,
                ..whole
            }),
            (None, None)
        );
    }

    #[test]
    fn what_was_measured_to_peers_is_in_the_payload_while_it_is_fresh() {
        let mut figures = Figures::default();
        let began = Instant::now();
        let measured = vec![
            peer("node-near", Some(100), 0, 1_000),
            peer("node-far", Some(300), 33, 1_001),
            peer("node-gone", None, 100, 1_002),
        ];
        figures.peers.set(Some(measured), began);
        let payload = |now| payload(&figures, now)["latency"].clone();
        let said = serde_json::json!({
            "measurements": [
                {"target_node_id": "node-near", "latency_us": 100, "packet_loss_percent": 0, "measured_at": "1970-01-01T00:16:40.000000000Z"},
                {"target_node_id": "node-far", "latency_us": 300, "packet_loss_percent": 33, "measured_at": "1970-01-01T00:16:41.000000000Z"},
                {"target_node_id": "node-gone", "packet_loss_percent": 100, "measured_at": "1970-01-01T00:16:42.000000000Z"},
            ],
            "avg_cluster_latency_us": 200,
        });
        let stale = crate::sample::max_staleness(crate::sample::Category::Latency);
        assert_eq!(payload(began), said);
        assert_eq!(payload(began + stale), said);
        assert_eq!(
            payload(began + stale + std::time::Duration::from_millis(1)),
            serde_json::Value::Null
        );
    }
}
