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

pub use claim::{Claimed, ask_claim, give_back, told_claim, waiting_nodes, waits_for};
pub use deliver::{answer, dispatched, signed_cancellation};
pub use end::{Taken, ask_task, cancel, ended, ended_unknown, judge, told_task};
pub use keep::{Swept, keep, prune};
pub use progress::{MAX_EVENTS, Noted, ProgressRow, note, progress_of};
pub use rotation::{ask_rotations, record_rotation, rotation, rotations, told_rotations};
pub use row::{Approval, TaskRow, find, history};
pub use submit::{NewTask, Room, Submitted, admit, approve, ask_room, record, told_room, unsigned_of};
pub use waiters::{Given, Parked, Waiters, Woken};

#[cfg(test)]
mod forged;
#[cfg(test)]
pub(crate) mod tests;
