//! The durable queue between admission and settlement: at most one report a node, the newest, on disk
//! before its acceptance is answered: in a journal, from which the database takes it in a moment later, or, where several
//! gateways share a database, in that. How each accepted report ended stays on record.

mod accept;
mod apply;
mod bind;
mod count;
mod drop;
mod gone;
mod group;
mod history;
mod journal;
mod log;
mod mend;
mod mend_bound;
mod pending;
mod rows;
mod together;
mod writer;

pub use accept::{Accept, Accepted};
pub use apply::Backlog;
pub use bind::{bind, members, return_member, unbind, unbind_item};
pub use count::give_out;
pub use drop::{drop_waiting, supersede_older};
pub use gone::{Gone, forget_gone};
pub(crate) use group::Hears;
pub use history::{End, EndRow, EndedAs, Refusal, end, end_bound_on_chain, ends_of, last_refusal, prune};
pub use journal::NAME as JOURNAL;
pub use log::{Log, unapplied};
pub use rows::{Depth, Intake, Member, Meta, Readable, depth, intake_of, intakes, metas, waiting_of};
pub use writer::Spool;

#[cfg(test)]
mod tests;
