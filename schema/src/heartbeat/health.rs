//! `health`: the node's own judgement and the figures behind it (specification 000, validateHealth).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::value::{FixedPoint6, Percent, Text, or_empty};
use crate::node::HealthStatus;
use crate::refusal::Refusal;

/// What Slurm says about the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlurmState {
    /// No job.
    Idle,
    /// All cores in use.
    Allocated,
    /// Some cores in use.
    Mixed,
    /// Down.
    Down,
    /// Drained or draining.
    Drain,
    /// None of these, or Slurm does not answer.
    Unknown,
}

/// Health figures; absent is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    /// The judgement.
    pub status: HealthStatus,
    /// Seconds since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
    /// Load average over 1 minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub load_average_1m: Option<FixedPoint6>,
    /// Load average over 5 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub load_average_5m: Option<FixedPoint6>,
    /// Load average over 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub load_average_15m: Option<FixedPoint6>,
    /// CPU busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_utilization_percent: Option<Percent>,
    /// Memory in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_utilization_percent: Option<Percent>,
    /// GPUs busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization_percent: Option<Percent>,
    /// GPU memory in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_utilization_percent: Option<Percent>,
    /// Busiest disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_io_utilization_percent: Option<Percent>,
    /// Busiest network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_utilization_percent: Option<Percent>,
    /// CPU temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i32>,
    /// Hottest GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_temperature_celsius: Option<i32>,
    /// Errors in the last 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_count_24h: Option<u32>,
    /// Warnings in the last 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning_count_24h: Option<u32>,
    /// The last error, at most 256 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_message: Option<Text<256>>,
    /// What Slurm says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub slurm_state: Option<SlurmState>,
}

impl Health {
    /// Only a judgement; every figure unknown.
    #[must_use]
    pub fn of(status: HealthStatus) -> Self {
        Self {
            status,
            uptime_seconds: None,
            load_average_1m: None,
            load_average_5m: None,
            load_average_15m: None,
            cpu_utilization_percent: None,
            memory_utilization_percent: None,
            gpu_utilization_percent: None,
            gpu_memory_utilization_percent: None,
            disk_io_utilization_percent: None,
            network_utilization_percent: None,
            temperature_celsius: None,
            gpu_temperature_celsius: None,
            error_count_24h: None,
            warning_count_24h: None,
            last_error_message: None,
            slurm_state: None,
        }
    }

    pub(crate) fn read(f: &Fields<'_>) -> Result<Self, Refusal> {
        let percent = |name: &str| {
            f.number(name, "an integer from 0 to 100", |n: u8| {
                Percent::try_from(n).ok()
            })
        };
        let degrees = |name: &str| f.number(name, "a 32-bit integer", |n: i32| Some(n));
        Ok(Self {
            status: f.required("status", "healthy, degraded, unhealthy, draining or offline")?,
            uptime_seconds: f.amount("uptime_seconds")?,
            load_average_1m: f.text("load_average_1m")?,
            load_average_5m: f.text("load_average_5m")?,
            load_average_15m: f.text("load_average_15m")?,
            cpu_utilization_percent: percent("cpu_utilization_percent")?,
            memory_utilization_percent: percent("memory_utilization_percent")?,
            gpu_utilization_percent: percent("gpu_utilization_percent")?,
            gpu_memory_utilization_percent: percent("gpu_memory_utilization_percent")?,
            disk_io_utilization_percent: percent("disk_io_utilization_percent")?,
            network_utilization_percent: percent("network_utilization_percent")?,
            temperature_celsius: degrees("temperature_celsius")?,
            gpu_temperature_celsius: degrees("gpu_temperature_celsius")?,
            error_count_24h: f.count("error_count_24h")?,
            warning_count_24h: f.count("warning_count_24h")?,
            last_error_message: f.text("last_error_message")?,
            slurm_state: f.optional("slurm_state", "idle, allocated, mixed, down, drain or unknown")?,
        })
    }
}
