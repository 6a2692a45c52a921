//! The heartbeat of specification 000: payload, envelope, and the checks that admit it.
//!
//! A payload is read with [`Heartbeat::parse`]: what comes out has passed every rule, and every refusal
//! names the JSON path of the field at fault. Unknown fields are ignored, `null` and `""` count as absent.

mod capacity;
mod compare;
mod envelope;
mod fields;
mod health;
mod jobs;
mod latency;
mod parse;
mod payload;
mod raw;
mod reading;
mod sign;
mod summary;
mod usual;
mod value;
mod verify;
mod whole;
mod window;

pub use crate::node::HealthStatus;
pub use capacity::Capacity;
pub use envelope::{HeartbeatAuth, HeartbeatRequest, MAX_HEARTBEAT_BYTES, auth_message, payload_hash};
pub use health::{Health, SlurmState};
pub use jobs::{ContainerRuntime, JobId, Jobs, MAX_ACTIVE_JOBS, Services};
pub use latency::{Latency, LatencyMeasurement, MAX_MEASUREMENTS};
pub use payload::Heartbeat;
pub use raw::Payload;
pub use sign::{SignError, SignHeartbeat, SignedHeartbeat, UnsignedHeartbeat, sign_heartbeat};
#[cfg(test)]
pub(crate) use summary::running;
pub use summary::{body_of, section_of};
pub use value::{FixedPoint6, Label, Percent, Text, ValueError};
pub use verify::{Admission, Registered, VerifiedHeartbeat, verify_heartbeat};
pub use window::check_window;
