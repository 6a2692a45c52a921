//! A node on record: its state, its hot record, and the rules that move it.

mod state;

pub use state::{NodeState, StateError};
