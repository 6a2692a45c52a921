//! The RPC as real clients use it, from raw JSON up: what `docs/adr/0003-embedded-chain.md` promises.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod blocks;
mod contracts;
mod limits;
mod queries;
mod refusals;
mod search;
mod transactions;
mod websocket;
