//! The program `virtengine-devnet` as a process: its folder, its signals, and SIGKILL at any moment.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod command_line;
mod kill;
mod process;
