//! A cluster's sums over its nodes, kept incrementally (protocol decision 25).

mod aggregate;
mod varint;

pub use aggregate::{Aggregate, micros_to_millis};
