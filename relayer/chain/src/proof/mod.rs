//! A heartbeat's way onto the chain as a file that anybody can check without asking anybody: the agent's request, the
//! transaction that carried its report, and the block's header with the validators' signatures.

mod block;
mod error;
mod file;
mod gather;
mod merkle;
mod payload;
mod verify;

pub use error::ProofError;
pub use file::{Agent, FORMAT, Inclusion, Proof, VERSION};
pub use gather::{Evidence, gather};
pub use verify::{Found, Trust, verify};
