//! The durable queue between admission and settlement: at most one report a node, the newest, on disk
//! before its acceptance is answered. How each accepted report ended stays on record.

mod accept;
mod bind;
mod drop;
mod history;
mod rows;
mod together;
mod writer;

pub use bind::{bind, members, return_member, unbind};
pub use drop::{drop_waiting, supersede_older};
pub use history::{End, EndRow, EndedAs, Refusal, end, ends_of, last_refusal, prune};
pub use rows::{Depth, Intake, Member, Meta, depth, intake_of, intakes, metas, waiting_of};
pub use writer::{Accept, Accepted, Spool};

#[cfg(test)]
mod tests;
