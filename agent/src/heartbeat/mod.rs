//! From figures to a heartbeat: capacity as a pure function, then the payload.

mod build;
mod capacity;
mod holdings;
mod jobs;
mod section;

pub use build::{Context, build, services};
pub use capacity::{Held, capacity, slurm_cpus};
pub use holdings::{HoldingsFile, TaskHoldings};
pub use jobs::{jobs, remembered_jobs, with_held};
pub use section::SectionTracker;
