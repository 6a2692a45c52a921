//! The contract's events: every one of the clusters served, in the chain's order, none twice and none left out, whatever
//! was down meanwhile.

mod follow;
mod rows;

pub use follow::{Follow, follow};
pub use rows::{NodeEvent, deregistered, events_of, followed, last_height, prune};
