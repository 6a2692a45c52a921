//! The gateway with real TLS, a real store and a real chain (the embedded one), in one test binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod admin;
mod agent;
mod audit;
#[cfg(feature = "fault-injection")]
mod backup;
mod bounds;
mod cli;
mod commands;
#[cfg(feature = "fault-injection")]
mod events;
mod floods;
mod heartbeats;
mod intruders;
#[cfg(feature = "fault-injection")]
mod kill;
mod outside_ca;
mod process;
mod proofs;
mod raw;
mod registration;
mod reload;
mod rotation;
mod settlement;
mod site;
mod tasks;
mod tokens;
mod watch;
