//! From the queue to the chain: the planner, the driver of the settlement machine, and the chain's duties.

mod apart;
mod beside;
mod claims;
mod compose;
mod driver;
pub mod duty;
mod ending;
pub mod fit;
mod former;
mod heads;
mod known;
pub mod outcome;
mod partial;
pub mod plan;
mod queue;
mod rota;
mod run;
mod sign;
mod sizing;
mod store;
mod wake;

pub use claims::Claims;
pub use driver::{Driver, DriverError, DriverParts, Shared, Signers};
pub use heads::watch_endpoints;
pub use run::{resume, run_all};
pub use store::{Kind, end_word, learnt_prices, open_transactions, prune_batches};
pub use wake::Wake;
