//! Full heartbeats beside what proves them on chain: kept because nodes forget old blocks.

mod collect;
mod rows;

pub use collect::collect;
pub use rows::{Which, bound_on_chain, forget, full, keep, on_chain, proof, prune};
