//! A node on record: its state, its hot record, and the rules that move it.

mod health;
pub mod lifecycle;
mod record;
mod state;
pub mod table;
mod transition;

pub use health::HealthStatus;
pub use record::{HOT_LEN, HotRecord};
pub use state::{NodeState, Prior, StateError};
pub use transition::{Reason, Transition};
