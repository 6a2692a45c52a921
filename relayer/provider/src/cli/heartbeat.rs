use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;

use super::args::Whose;
use super::output::{Output, line};
use crate::admin::Admin;

#[derive(Debug, Subcommand)]
pub(super) enum HeartbeatCommand {
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

pub(super) async fn run(desk: &Admin, what: HeartbeatCommand, out: Output) -> anyhow::Result<()> {
    let HeartbeatCommand::Prove {
        whose,
        sequence,
        epoch,
        file,
    } = what;
    let proof = desk
        .prove(&whose.node_id, whose.cluster_id.as_ref(), epoch, sequence)
        .await?;
    // Always JSON: this is a file, whatever answers look like.
    let text = serde_json::to_string_pretty(&proof)?;
    let Some(path) = file else { return line(&text) };
    std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    let path = path.display().to_string();
    let said = format!("{path} proves a heartbeat; check it with: virtengine proof verify {path}");
    out.done(
        &said,
        &serde_json::json!({ "file": path, "node_id": whose.node_id }),
    )
}
