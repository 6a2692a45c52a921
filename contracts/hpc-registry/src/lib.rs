//! The registry of HPC nodes: who they are, whether they live, what they offer. It verifies every agent's
//! signature itself, so that whoever relays a report can delay it, but neither forge nor alter it.
//!
//! Storage is paged ([`node`](self)): gas on a Cosmos chain is flat costs per access and bytes, so up to 64 nodes
//! share one value. `keys.rs` lists every key, `docs/protocol.md` the bytes on the wire.

// `DepsMut` is a bundle of references; CosmWasm passes it by value.
#![allow(clippy::needless_pass_by_value)]

mod anchor;
mod cluster;
mod config;
pub mod contract;
mod emit;
pub mod entry;
pub mod error;
mod heartbeat;
mod keys;
mod meter;
mod node;
mod sweep;
