//! From figures to a heartbeat: capacity and health as pure functions, then the payload.

mod build;
mod capacity;
mod findings;
mod health;
mod jobs;
mod section;

pub use build::{Context, build};
pub use capacity::{Held, capacity};
pub use health::{Finding, Severity, judge};
pub use jobs::jobs;
pub use section::SectionTracker;
