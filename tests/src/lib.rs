//! Real processes under test: a chain (embedded or wasmd), the provider, agents, the command line; and what a test
//! needs to drive them. The suites are in `tests/tests/`, run by `scripts/test`.

pub mod agent;
pub mod bench;
pub mod calm;
pub mod chain;
pub mod cli;
pub mod deadline;
#[cfg(test)]
mod deadline_tests;
pub mod guest;
pub mod ledger;
pub mod node;
pub mod outcome;
pub mod port;
pub mod process;
pub mod program;
pub mod raw;
pub mod registry;
pub mod scene;
pub mod site;
pub mod slurm;
pub mod wait;
