//! Reads a payload in one pass: nearly every one is as it should be.
//!
//! What is not is read again, field by field, by those who can name the field at fault; so is what this version does not
//! know, for a key that stands twice is refused whatever it says.

use std::num::NonZeroU32;

use serde::Deserialize;
use serde::de::Deserializer;

use super::reading::{
    self, Object, Own, count, job_ids, measurements, object, some_amount, some_count, some_object, text,
};
use super::value::{FixedPoint6, Label, Percent, Text};
use super::{
    Capacity, ContainerRuntime, Health, HealthStatus, Heartbeat, JobId, Jobs, Latency, LatencyMeasurement,
    Services, SlurmState,
};
use crate::id::{ClusterId, NodeId};
use crate::time::Rfc3339;

/// The payload, which is one value and no more, if it breaks no rule and holds nothing unknown.
pub(super) fn read(payload: &str) -> Option<Heartbeat> {
    first(payload).map(|(heartbeat, ..)| heartbeat)
}

/// The same of the payload that a text begins with, its own text, and what follows.
pub(super) fn first(text: &str) -> Option<(Heartbeat, &str, &str)> {
    let (Own(heartbeat), own, rest) = reading::first::<Own<Heartbeat>>(text)?;
    heartbeat.capacity.check().ok()?;
    Some((heartbeat, own, rest))
}

macro_rules! objects {
    ($($of:ident by $reader:ident),*) => {$(
        impl Object for $of {
            fn read<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
                $reader::deserialize(de)
            }
        }
    )*};
}

objects!(
    Heartbeat by WholeHeartbeat,
    Capacity by WholeCapacity,
    Health by WholeHealth,
    Latency by WholeLatency,
    LatencyMeasurement by WholeMeasurement,
    Jobs by WholeJobs,
    Services by WholeServices
);

#[derive(Deserialize)]
#[serde(remote = "Heartbeat", deny_unknown_fields)]
struct WholeHeartbeat {
    node_id: NodeId,
    cluster_id: ClusterId,
    sequence_number: NonZeroU32,
    timestamp: Rfc3339,
    #[serde(default, deserialize_with = "text")]
    agent_version: Option<Label<32>>,
    #[serde(deserialize_with = "object")]
    capacity: Capacity,
    #[serde(deserialize_with = "object")]
    health: Health,
    #[serde(default, deserialize_with = "some_object")]
    latency: Option<Latency>,
    #[serde(default, deserialize_with = "some_object")]
    jobs: Option<Jobs>,
    #[serde(default, deserialize_with = "some_object")]
    services: Option<Services>,
}

#[derive(Deserialize)]
#[serde(remote = "Capacity", deny_unknown_fields)]
struct WholeCapacity {
    #[serde(deserialize_with = "count")]
    cpu_cores_total: u32,
    #[serde(deserialize_with = "count")]
    cpu_cores_available: u32,
    #[serde(default, deserialize_with = "some_count")]
    cpu_cores_allocated: Option<u32>,
    #[serde(deserialize_with = "count")]
    memory_gb_total: u32,
    #[serde(deserialize_with = "count")]
    memory_gb_available: u32,
    #[serde(default, deserialize_with = "some_count")]
    memory_gb_allocated: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    gpus_total: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    gpus_available: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    gpus_allocated: Option<u32>,
    #[serde(default, deserialize_with = "text")]
    gpu_type: Option<Label<64>>,
    #[serde(default, deserialize_with = "some_count")]
    storage_gb_total: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    storage_gb_available: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    storage_gb_allocated: Option<u32>,
}

#[derive(Deserialize)]
#[serde(remote = "Health", deny_unknown_fields)]
struct WholeHealth {
    status: HealthStatus,
    #[serde(default, deserialize_with = "some_amount")]
    uptime_seconds: Option<u64>,
    #[serde(default, deserialize_with = "text")]
    load_average_1m: Option<FixedPoint6>,
    #[serde(default, deserialize_with = "text")]
    load_average_5m: Option<FixedPoint6>,
    #[serde(default, deserialize_with = "text")]
    load_average_15m: Option<FixedPoint6>,
    #[serde(default)]
    cpu_utilization_percent: Option<Percent>,
    #[serde(default)]
    memory_utilization_percent: Option<Percent>,
    #[serde(default)]
    gpu_utilization_percent: Option<Percent>,
    #[serde(default)]
    gpu_memory_utilization_percent: Option<Percent>,
    #[serde(default)]
    disk_io_utilization_percent: Option<Percent>,
    #[serde(default)]
    network_utilization_percent: Option<Percent>,
    #[serde(default)]
    temperature_celsius: Option<i32>,
    #[serde(default)]
    gpu_temperature_celsius: Option<i32>,
    #[serde(default, deserialize_with = "some_count")]
    error_count_24h: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    warning_count_24h: Option<u32>,
    #[serde(default, deserialize_with = "text")]
    last_error_message: Option<Text<256>>,
    #[serde(default)]
    slurm_state: Option<SlurmState>,
}

#[derive(Deserialize)]
#[serde(remote = "Latency", deny_unknown_fields)]
struct WholeLatency {
    #[serde(default, deserialize_with = "measurements")]
    measurements: Vec<LatencyMeasurement>,
    #[serde(default, deserialize_with = "some_amount")]
    gateway_latency_us: Option<u64>,
    #[serde(default, deserialize_with = "some_amount")]
    chain_latency_ms: Option<u64>,
    #[serde(default, deserialize_with = "some_amount")]
    avg_cluster_latency_us: Option<u64>,
}

#[derive(Deserialize)]
#[serde(remote = "LatencyMeasurement", deny_unknown_fields)]
struct WholeMeasurement {
    target_node_id: NodeId,
    #[serde(default, deserialize_with = "some_amount")]
    latency_us: Option<u64>,
    packet_loss_percent: Percent,
    measured_at: Rfc3339,
}

#[derive(Deserialize)]
#[serde(remote = "Jobs", deny_unknown_fields)]
struct WholeJobs {
    #[serde(default, deserialize_with = "some_count")]
    running_count: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    pending_count: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    completed_24h: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    failed_24h: Option<u32>,
    #[serde(default, deserialize_with = "job_ids")]
    active_job_ids: Vec<JobId>,
}

#[derive(Deserialize)]
#[serde(remote = "Services", deny_unknown_fields)]
struct WholeServices {
    #[serde(default)]
    slurmd_running: Option<bool>,
    #[serde(default, deserialize_with = "text")]
    slurmd_version: Option<Label<64>>,
    #[serde(default)]
    munge_running: Option<bool>,
    #[serde(default)]
    container_runtime: Option<ContainerRuntime>,
    #[serde(default, deserialize_with = "text")]
    container_runtime_version: Option<Label<64>>,
}
