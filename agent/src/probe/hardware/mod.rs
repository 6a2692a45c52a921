//! The machine's own instruments: sensors, power, memory errors, InfiniBand. No field of the heartbeat holds them, but for
//! the use of links ([`fabric`]); they stand in `inventory` and speak up as findings.

pub mod energy;
pub mod fabric;
pub mod infiniband;
pub mod memory_errors;
pub mod sensors;

use std::path::Path;

use super::source::signed;

/// The number in a one-line file.
fn number(path: &Path) -> Option<i64> {
    signed(super::line(path)?.as_bytes())
}
