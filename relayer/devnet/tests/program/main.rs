//! The program `virtengine-devnet` as a process: its folder, its signals, and SIGKILL at any moment.

#[path = "../support/mod.rs"]
mod support;

mod command_line;
mod kill;
mod process;
