//! The lifecycle on record.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

#[path = "../common/mod.rs"]
mod common;
mod drains;
mod life;
mod silence;
