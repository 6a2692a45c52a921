mod generate;
mod properties;
mod rules;

use serde_json::Value;

use super::*;
use crate::heartbeat::{
    ContainerRuntime, FixedPoint6, HealthStatus, HeartbeatRequest, JobId, Label, LatencyMeasurement, Percent,
    SlurmState, Text, check_window,
};
use crate::refusal::RefusalKind;

const HEALTHY: &str = include_str!("../../../fixtures/healthy.json");
const DEGRADED: &str = include_str!("../../../fixtures/degraded.json");

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

pub(crate) fn healthy() -> Value {
    serde_json::from_str::<Value>(HEALTHY).unwrap()["heartbeat"].take()
}

fn parse(value: &Value) -> Result<Heartbeat, Refusal> {
    Heartbeat::parse(&raw(value))
}

pub(crate) use generate::any_heartbeat;
