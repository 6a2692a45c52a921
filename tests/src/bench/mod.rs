//! Benchmarks: what they measure, apart from how it is printed. The programs are in `src/bin`.

pub mod fleet;
pub mod gas;
pub mod sender;
