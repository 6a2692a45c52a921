use anyhow::Context as _;

use super::args::HeartbeatCommand;
use super::desk::Desk;
use super::output::{Output, line};

pub(super) async fn run(desk: &Desk, what: HeartbeatCommand, out: Output) -> anyhow::Result<()> {
    let HeartbeatCommand::Prove {
        whose,
        sequence,
        epoch,
        file,
    } = what;
    let proof = desk.prove(&whose, epoch, sequence).await?;
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
