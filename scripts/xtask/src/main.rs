//! Chores of the workspace that outgrow shell: `cargo xtask --help`.

mod lint;
mod outcomes;
mod promises;
mod schema;
mod tree;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the workspace that outgrow shell")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks what no compiler checks: lints switched on everywhere, versions in one place, unused dependencies, file
    /// lengths, files that take from each other in a circle, words that do not belong here, links of the documentation.
    Lint,
    /// Prints each promise of the documentation with its proof; fails where a proof does not exist.
    Promises,
    /// Compares what the end-to-end suite recorded on the embedded chain with what it recorded on wasmd.
    Outcomes,
    /// Writes the JSON Schemas and test vectors of `schema/` from the code.
    Schema {
        /// Compares instead of writing.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let root = tree::root()?;
    match Args::parse().task {
        Task::Lint => lint::run(&root),
        Task::Promises => promises::run(&root),
        Task::Outcomes => outcomes::run(&root),
        Task::Schema { check } => schema::run(&root, check),
    }
}
