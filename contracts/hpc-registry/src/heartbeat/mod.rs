//! Batches of signed reports.
//!
//! Three passes: read all items and the pages they need; verify all signatures, up to 256 a call; judge and apply
//! one by one. An item's fault is its own: no other item shares its fate.

mod apply;
mod collect;
mod signatures;
pub(crate) mod submit;
mod work;
