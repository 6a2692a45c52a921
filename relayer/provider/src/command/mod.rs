//! Orders to nodes: drain, resume, shutdown, update_agent, run_diagnostic. An order is told with every answer, signed
//! by the cluster's task key, until the node acknowledges it or its deadline is over; all stay on record for a while.

mod order;
mod rows;
mod sign;

pub use order::record_order;
pub use rows::{
    CommandRow, CommandState, NewCommand, acknowledge, cancel, expire, find, history, pending, prune, submit,
    told,
};
pub use sign::signed;

#[cfg(test)]
mod tests;
