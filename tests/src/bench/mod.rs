//! Benchmarks: what they measure, apart from how it is run. The programs are in `src/bin`.

pub mod agent;
pub mod budget;
pub mod chain;
pub mod figures;
pub mod fleet;
pub mod gateway;
pub mod measure;
pub mod page;
pub mod reports;
pub mod sender;
pub mod silent;
