//! From the queue to the chain: the planner, the driver of the settlement machine, and the chain's duties.

mod compose;
mod driver;
pub mod duty;
mod ending;
mod io;
pub mod outcome;
pub mod plan;
mod queue;
mod sign;
mod store;

pub use driver::{Driver, DriverError, DriverParts, Signers};
pub use store::{Kind, end_word, open_transactions, prune_batches};
