//! What operators look at: health, readiness with its reasons, metrics.

mod health;
mod listener;
mod metrics;

pub use health::{Health, Readiness, Reason, Severity, TROUBLES, Trouble};
pub use listener::serve;
pub use metrics::{
    EndpointLabels, EventLabels, HeartbeatLabels, Metrics, ReportLabels, RequestLabels, TxLabels,
};
