//! Reads a payload in one pass: nearly every one is as it should be.
//!
//! What is not is read again, field by field, by those who can name the field at fault; so is what this version does not
//! know, for a key that stands twice is refused whatever it says.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::value::{FixedPoint6, Label, Percent, Text};
use super::{
    Capacity, ContainerRuntime, Health, HealthStatus, Heartbeat, JobId, Jobs, Latency, LatencyMeasurement,
    MAX_ACTIVE_JOBS, MAX_MEASUREMENTS, Services, SlurmState,
};
use crate::id::{ClusterId, NodeId};
use crate::time::Rfc3339;

/// The payload, if it breaks no rule and holds nothing unknown.
pub(super) fn read(raw: &RawValue) -> Option<Heartbeat> {
    let mut de = serde_json::Deserializer::from_str(raw.get());
    let heartbeat: Heartbeat = object(&mut de).ok()?;
    heartbeat.capacity.check().ok()?;
    Some(heartbeat)
}

/// What a JSON object says. A list is none, though serde would take one for a struct.
pub(super) trait Object: Sized {
    fn read<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error>;
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

pub(super) fn object<'de, T: Object, D: Deserializer<'de>>(de: D) -> Result<T, D::Error> {
    struct Map<T>(PhantomData<T>);
    impl<'de, T: Object> Visitor<'de> for Map<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::read(MapAccessDeserializer::new(map))
        }
    }
    de.deserialize_map(Map(PhantomData))
}

/// An object as a value of its own, for lists and options.
struct Own<T>(T);

impl<'de, T: Object> Deserialize<'de> for Own<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        object(de).map(Self)
    }
}

fn some_object<'de, T: Object, D: Deserializer<'de>>(de: D) -> Result<Option<T>, D::Error> {
    let own = Option::<Own<T>>::deserialize(de)?;
    Ok(own.map(|Own(object)| object))
}

/// int32 of the specification, not negative.
fn count<'de, D: Deserializer<'de>>(de: D) -> Result<u32, D::Error> {
    let n = u32::deserialize(de)?;
    i32::try_from(n).map(|_| n).map_err(D::Error::custom)
}

fn some_count<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u32>, D::Error> {
    let n = Option::<u32>::deserialize(de)?;
    n.map(i32::try_from)
        .transpose()
        .map(|_| n)
        .map_err(D::Error::custom)
}

/// int64 of the specification, not negative.
fn some_amount<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u64>, D::Error> {
    let n = Option::<u64>::deserialize(de)?;
    n.map(i64::try_from)
        .transpose()
        .map(|_| n)
        .map_err(D::Error::custom)
}

/// A text, of which the empty one counts as absent.
pub(super) fn text<'de, T, D>(de: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<String, Error: fmt::Display>,
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(de)?.filter(|text| !text.is_empty());
    text.map(T::try_from).transpose().map_err(D::Error::custom)
}

fn measurements<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<LatencyMeasurement>, D::Error> {
    list(de, MAX_MEASUREMENTS, |Own(one): Own<LatencyMeasurement>| {
        one.is_whole().then_some(one)
    })
}

fn job_ids<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<JobId>, D::Error> {
    list(de, MAX_ACTIVE_JOBS, Some)
}

/// A list of at most `max` that `take` takes; null is none.
fn list<'de, T, U, D>(de: D, max: usize, take: fn(T) -> Option<U>) -> Result<Vec<U>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<T, U>(usize, fn(T) -> Option<U>);
    impl<'de, T: Deserialize<'de>, U> Visitor<'de> for List<T, U> {
        type Value = Vec<U>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {} values", self.0)
        }
        fn visit_unit<E>(self) -> Result<Vec<U>, E> {
            Ok(Vec::new())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<U>, A::Error> {
            let mut list = Vec::new();
            while let Some(next) = seq.next_element()? {
                let taken = (self.1)(next).filter(|_| list.len() < self.0);
                list.push(taken.ok_or_else(|| A::Error::invalid_length(list.len(), &self))?);
            }
            Ok(list)
        }
    }
    de.deserialize_any(List(max, take))
}
