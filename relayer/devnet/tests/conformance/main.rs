//! The RPC as real clients use it, from raw JSON up: what `docs/adr/0003-embedded-chain.md` promises.

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
