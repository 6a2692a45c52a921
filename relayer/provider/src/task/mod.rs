//! Typed tasks of nodes: a queue in the store, claimed in one statement, delivered to nodes that wait, ended by results
//! that the node signed.

mod claim;
mod deliver;
mod end;
mod keep;
mod progress;
mod rotation;
mod row;
mod submit;
mod waiters;

pub use claim::{Claimed, claim, waiting_nodes, waits_for};
pub use deliver::{answer, signed_cancellation};
pub use end::{Taken, cancel, finish};
pub use keep::{Swept, keep, prune};
pub use progress::{MAX_EVENTS, ProgressRow, note, progress_of};
pub use rotation::{record_rotation, rotation, rotations};
pub use row::{Approval, TaskRow, find, history};
pub use submit::{NewTask, Submitted, approve, schedule, submit, unsigned_of};
pub use waiters::{Parked, Waiters, Woken};

#[cfg(test)]
mod forged;
#[cfg(test)]
mod tests;
