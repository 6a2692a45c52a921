//! The daemon against everything that an RPC endpoint may do: a proxy in front of the embedded chain's port misbehaves as
//! told. Each test sees the report on chain once, and the line in the log that says what was the matter.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod admin;
#[path = "../it/agent.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod agent;
#[cfg(feature = "fault-injection")]
mod alerts;
mod answers;
mod backlog;
mod blocks;
#[cfg(feature = "fault-injection")]
mod code;
mod endpoints;
mod events;
mod intruders;
mod keys;
mod logs;
mod money;
#[cfg(feature = "fault-injection")]
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod process;
mod proofs;
mod proxy;
mod receiver;
mod scene;
#[path = "../it/site.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod site;
mod store;
mod tls;
