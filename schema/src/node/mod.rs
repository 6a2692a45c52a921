//! A node on record: its state, its hot record, and the rules that move it.

mod health;
mod state;

pub use health::HealthStatus;
pub use state::{NodeState, StateError};
