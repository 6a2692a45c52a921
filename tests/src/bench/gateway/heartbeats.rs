//! Signed heartbeats of a busy node with GPUs, as bytes ready to be sent.

use std::num::NonZeroU32;

use anyhow::{Context, Result, anyhow};
use hpc_schema::heartbeat::{
    Capacity, ContainerRuntime, FixedPoint6, Health, Heartbeat, Jobs, Latency, LatencyMeasurement, Percent,
    Services, SignHeartbeat, SlurmState, section_of, sign_heartbeat,
};
use hpc_schema::node::HealthStatus;
use hpc_schema::registry::JobIds;
use hpc_schema::report::section_digest;
use hpc_schema::time::Rfc3339;

use super::known::Known;
use crate::raw::now;

/// The body of a node's heartbeat number `sequence`. The chain is taken to hold its section already, as it does in all
/// but a node's first.
///
/// # Errors
/// If a figure is out of range.
pub fn body(node: &Known, sequence: u32) -> Result<Vec<u8>> {
    let heartbeat = heartbeat(node, sequence)?;
    let settled = section_digest(&section_of(&heartbeat, JobIds::None).encode());
    let what = SignHeartbeat {
        heartbeat: &heartbeat,
        nonce: rand::random(),
        tag: &node.tag,
        job_ids: JobIds::None,
        settled_section: Some(settled),
    };
    let sign = |message: &[u8]| Ok::<[u8; 64], std::convert::Infallible>(node.key.sign(message).into());
    let signed = sign_heartbeat(&what, sign).map_err(|e| anyhow!("{e}"))?;
    Ok(serde_json::to_vec(&signed.request)?)
}

/// The same with the head of its HTTP request.
///
/// # Errors
/// As [`body`].
pub fn request(node: &Known, sequence: u32) -> Result<Vec<u8>> {
    let body = body(node, sequence)?;
    let head = format!(
        "POST /api/v1/hpc/nodes/{}/heartbeat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        node.id,
        body.len()
    );
    Ok([head.as_bytes(), &body].concat())
}

fn heartbeat(node: &Known, sequence: u32) -> Result<Heartbeat> {
    let time = Rfc3339::from_unix(now()?, 0)?;
    let percent = |n: u8| Percent::try_from(n).ok();
    let load = |n: u64| Some(FixedPoint6::from_millionths(n));
    let free = sequence % 64;
    let neighbour = |n: u32| {
        Ok(LatencyMeasurement {
            target_node_id: format!("node-{n:05}-{}", node.cluster).parse()?,
            latency_us: Some(120 + u64::from(n)),
            packet_loss_percent: Percent::try_from(0)?,
            measured_at: time.clone(),
        })
    };
    Ok(Heartbeat {
        node_id: node.id.clone(),
        cluster_id: node.cluster.clone(),
        sequence_number: NonZeroU32::new(sequence).context("0 is no sequence")?,
        timestamp: time.clone(),
        agent_version: Some("0.1.0".parse()?),
        capacity: Capacity {
            cpu_cores_total: 64,
            cpu_cores_available: free,
            cpu_cores_allocated: Some(64 - free),
            memory_gb_total: 512,
            memory_gb_available: 200,
            memory_gb_allocated: Some(312),
            gpus_total: Some(8),
            gpus_available: Some(3),
            gpus_allocated: Some(5),
            gpu_type: Some("NVIDIA A100-SXM4-80GB".parse()?),
            storage_gb_total: Some(7_680),
            storage_gb_available: Some(4_200),
            storage_gb_allocated: Some(3_480),
        },
        health: Health {
            uptime_seconds: Some(1_234_567),
            load_average_1m: load(12_340_000),
            load_average_5m: load(11_870_000),
            load_average_15m: load(10_020_000),
            cpu_utilization_percent: percent(63),
            memory_utilization_percent: percent(61),
            gpu_utilization_percent: percent(88),
            gpu_memory_utilization_percent: percent(74),
            disk_io_utilization_percent: percent(12),
            network_utilization_percent: percent(31),
            temperature_celsius: Some(58),
            gpu_temperature_celsius: Some(71),
            error_count_24h: Some(0),
            warning_count_24h: Some(2),
            slurm_state: Some(SlurmState::Idle),
            ..Health::of(HealthStatus::Healthy)
        },
        latency: Some(Latency {
            measurements: (1..=3).map(neighbour).collect::<Result<_>>()?,
            gateway_latency_us: Some(410),
            chain_latency_ms: Some(35),
            avg_cluster_latency_us: Some(122),
        }),
        jobs: Some(Jobs {
            running_count: Some(2),
            pending_count: Some(1),
            completed_24h: Some(17),
            failed_24h: Some(0),
            active_job_ids: vec!["slurm-81231".parse()?, "slurm-81240".parse()?],
        }),
        services: Some(Services {
            slurmd_running: Some(true),
            slurmd_version: Some("22.05.8".parse()?),
            munge_running: Some(true),
            container_runtime: Some(ContainerRuntime::Podman),
            container_runtime_version: Some("4.3.1".parse()?),
        }),
    })
}
