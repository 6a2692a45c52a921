//! From figures to a heartbeat: capacity as a pure function, then the payload.

mod build;
mod capacity;
mod jobs;
mod section;

pub use build::{Context, build};
pub use capacity::{Held, capacity};
pub use jobs::{jobs, remembered_jobs};
pub use section::SectionTracker;
