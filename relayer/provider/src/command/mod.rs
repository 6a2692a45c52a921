//! Orders to nodes: drain, resume, shutdown, update_agent, run_diagnostic. An order is told with every answer, signed
//! by the cluster's task key, until the node acknowledges it or its deadline is over; all stay on record for a while.

mod order;
mod read;
mod row;
mod sign;
mod write;

pub use order::record_order;
pub use read::{find, history, pending, pending_of};
pub use row::{CommandRow, CommandState, NewCommand};
pub use sign::signed;
pub use write::{acknowledge, cancel, expire, prune, submit, told};

#[cfg(test)]
mod tests;
