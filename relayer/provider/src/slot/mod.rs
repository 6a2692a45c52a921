//! Slots of nodes that are let as slices. A slot is let only while it is free, and it is free only by a node's signed
//! proof that nothing of whoever had it is left.

mod claim;
mod found;
mod row;
mod settle;
mod state;
mod sweep;

pub use claim::{Claimed, claim};
pub use found::{Found, add};
pub use row::{SlotRow, find, holder, list, page, put};
pub use settle::settle;
pub use state::SlotState;
pub use sweep::sweep;

#[cfg(test)]
mod tests;
