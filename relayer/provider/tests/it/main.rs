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
mod attestation;
mod audit;
#[cfg(feature = "fault-injection")]
mod backup;
mod bounds;
mod certificates;
mod cli;
mod commands;
#[cfg(feature = "fault-injection")]
mod events;
mod floods;
mod heartbeats;
mod intruders;
#[cfg(feature = "fault-injection")]
mod kill;
mod leaving;
mod lists;
#[path = "../faults/logs.rs"]
#[allow(dead_code, reason = "shared with another suite")]
mod logs;
mod outside_ca;
mod process;
mod proofs;
mod raw;
mod registration;
mod reload;
mod remote;
#[cfg(feature = "fault-injection")]
mod restored;
mod rotation;
mod service;
mod settlement;
mod site;
mod slots;
mod tasks;
mod tokens;
mod watch;
