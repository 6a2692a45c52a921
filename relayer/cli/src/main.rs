//! `virtengine`: queries and transactions of the HPC registry, keys, deployment.

mod args;
mod confirm;
mod context;
mod deploy;
mod error;
mod error_chain;
mod file;
mod keys;
mod output;
mod parse;
mod profile;
mod proof;
mod query;
mod run;
mod tx;

use std::process::ExitCode;

fn main() -> ExitCode {
    run::main()
}
