//! Full heartbeats beside what proves them on chain: kept because nodes forget old blocks.

mod collect;
mod full;
mod rows;

pub use collect::collect;
pub use full::full;
pub use rows::{Which, bound_on_chain, forget, keep, missing, on_chain, proof, prune};
