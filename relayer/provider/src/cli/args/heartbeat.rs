use std::path::PathBuf;

use clap::Subcommand;

use super::Whose;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum HeartbeatCommand {
    /// Writes a file that proves a heartbeat on chain to anybody: `virtengine proof verify` checks it without asking anyone.
    #[command(after_help = "Examples:\n  \
        virtengine-provider heartbeat prove node-hpc1-compute-042 --sequence 1710 --file heartbeat.json\n  \
        virtengine proof verify heartbeat.json")]
    Prove {
        #[command(flatten)]
        whose: Whose,
        /// Which heartbeat; without it the newest that can be proven.
        #[arg(long)]
        sequence: Option<u32>,
        /// Of which registration; without it the newest.
        #[arg(long)]
        epoch: Option<u64>,
        /// Where to write it; without it standard output.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}
