//! What operators look at: health, readiness with its reasons, metrics.

mod health;
mod listener;
mod metrics;

pub use health::{Health, Reason};
pub use listener::serve;
pub use metrics::{HeartbeatLabels, Metrics, ReportLabels, RequestLabels, TxLabels};
