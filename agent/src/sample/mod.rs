//! Measuring on schedule: collectors run on a worker thread under supervision, so that a hung file server or driver
//! delays nothing; every figure carries the time it was taken and is absent once it is too old.

mod adaptive;
mod collect;
mod figures;
mod sampler;
mod schedule;
mod worker;

use std::time::Duration;

pub use adaptive::Adaptive;
pub use collect::{Collector, Reading, Sources, standard};
pub use figures::{Figure, Figures};
pub use hpc_schema::sampling::MetricCategory as Category;
pub use sampler::{Sampler, Stuck};
pub use schedule::Schedule;

/// Not measured more often than this.
#[must_use]
pub fn minimum(category: Category) -> Duration {
    Duration::from_secs(u64::from(category.limits().min_seconds))
}

/// The interval of the specification's table.
#[must_use]
pub fn recommended(category: Category) -> Duration {
    Duration::from_secs(u64::from(category.limits().recommended_seconds))
}

/// An older figure counts as unknown.
#[must_use]
pub fn max_staleness(category: Category) -> Duration {
    Duration::from_secs(u64::from(category.limits().max_staleness_seconds))
}
