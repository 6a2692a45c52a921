//! The gateway with real TLS, a real store and a real chain (the embedded one), in one test binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod agent;
mod cli;
mod heartbeats;
mod intruders;
#[cfg(feature = "fault-injection")]
mod kill;
mod registration;
mod settlement;
mod site;
