//! From figures to a heartbeat: capacity and health as pure functions, then the payload.

mod build;
mod capacity;
mod health;
mod section;

pub use build::{Context, build};
pub use capacity::{Held, capacity};
pub use health::{Finding, Severity, judge};
pub use section::SectionTracker;
