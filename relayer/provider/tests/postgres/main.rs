//! The store on PostgreSQL and the gateways that share it. Needs a server: `scripts/postgres cargo test … --test postgres`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod acks;
#[path = "../it/agent.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod agent;
mod alerts;
mod backup;
mod operator;
mod pair;
mod probes;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod process;
#[path = "../faults/receiver.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod receiver;
mod refused;
#[path = "../it/restored.rs"]
mod restored;
mod silent;
#[path = "../it/site.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod site;
mod store;
mod tls;
