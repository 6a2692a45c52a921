//! The real program against a real chain: every promise of `docs/cli.md` that needs a process to be seen.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: what is not as expected ends the test"
)]

#[path = "../../../../tests/src/deadline.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other suites")]
mod deadline;
mod failures;
mod flow;
mod forgetful;
mod keys;
mod lists;
mod money;
mod world;
