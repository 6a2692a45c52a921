//! Every type that crosses a boundary of VirtEngine HPC, with its validation,
//! the bytes that are signed, and the pure rules that agent, provider and
//! contract share. No IO, no clock, no randomness: time is always an argument.
//!
//! The prose reference is `docs/protocol.md`.

pub mod audit;
pub mod bytes;
pub mod cluster;
pub mod code;
pub mod command;
pub mod gateway;
pub mod heartbeat;
pub mod id;
pub mod key;
pub mod node;
pub mod refusal;
pub mod registration;
pub mod registry;
pub mod report;
pub mod sampling;
pub mod schemas;
pub mod task;
mod text;
pub mod time;
pub mod token;
#[cfg(feature = "native-crypto")]
pub mod vectors;
