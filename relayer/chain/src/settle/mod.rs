//! Settlement: one signing key, one outstanding transaction, followed to a proven end.
//!
//! ```text
//! Queued → Planned → Signed → Sent → Included | Failed | Expired | Consumed
//! ```
//!
//! [`step`] is a pure function of a [`State`], an [`Input`] and the clock; it answers with [`Action`]s that a thin driver
//! carries out **in their order**. What the driver owes:
//!
//! * [`Action::Persist`] is durable (committed and synced) before any later action of the same list is begun. The
//!   driver binds a batch's members to the transaction in the same commit that stores `Signed`.
//! * Answers are given back as inputs, or dropped: every question is asked again at a later height. Late, doubled
//!   and reordered answers are harmless.
//! * [`Input::Tick`] at least every few seconds, [`Input::Head`] for each new block of each endpoint. At the start,
//!   one older block of an endpoint before its newest tells the block time.
//! * After a start from a stored state: [`Input::Restarted`] before all else.
//! * [`Action::Finished`] and [`Action::QueryNodeSequences`] are repeated after a restart until [`Input::Settled`]
//!   comes: the driver settles the batch's members idempotently and stores that together with the state after `Settled`.
//!
//! Why an end is never guessed: a transaction with `timeout_height` T cannot execute in a block above T. So an account
//! answer whose **own** height is at least T and that shows our sequence unused proves that the transaction is dead, and
//! a replacement may reuse the sequence. "Not found", `status` and heights of other endpoints prove nothing.

mod account;
mod action;
mod input;
pub mod io;
mod job;
mod machine;
mod state;
mod types;
mod view;

pub use action::{Action, Alarm};
pub use input::Input;
pub use machine::step;
pub use state::{AccountView, Outstanding, Phase, State};
pub use types::{BatchId, CheckTx, Condition, Config, End, EndpointId, Inclusion, SignRequest, SignedTx};

#[cfg(test)]
mod tests;
