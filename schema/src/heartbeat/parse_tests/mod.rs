mod generate;
mod properties;
mod rules;
mod usual;

use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::heartbeat::{
    ContainerRuntime, FixedPoint6, HealthStatus, HeartbeatRequest, JobId, Label, LatencyMeasurement, Percent,
    SlurmState, Text, check_window,
};
use crate::refusal::RefusalKind;

const HEALTHY: &str = include_str!("../../../fixtures/healthy.json");
const DEGRADED: &str = include_str!("../../../fixtures/degraded.json");

fn payload(text: impl Into<String>) -> Payload<'static> {
    RawValue::from_string(text.into()).unwrap().into()
}

pub(crate) fn healthy() -> Value {
    serde_json::from_str::<Value>(HEALTHY).unwrap()["heartbeat"].take()
}

fn parse(value: &Value) -> Result<Heartbeat, Refusal> {
    Heartbeat::parse(&payload(value.to_string()))
}

pub(crate) use generate::any_heartbeat;
