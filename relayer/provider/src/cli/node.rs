use serde_json::json;

use super::args::NodeCommand;
use super::desk::Desk;
use super::nodes::{HEAD, cells};
use super::output::Output;
use super::watch;
use crate::config::Span;

pub(super) async fn run(desk: &Desk, command: NodeCommand, out: Output) -> anyhow::Result<()> {
    match command {
        NodeCommand::List => out.list(&desk.nodes(None).await?, &HEAD, cells),
        NodeCommand::Show { whose, reports } => out.value(&desk.node(&whose, reports).await?),
        NodeCommand::Watch { node_id, every } => {
            watch::run(desk, node_id.as_ref(), every.duration(), out).await
        }
        NodeCommand::Disable { whose, reason } => {
            let disabled = desk.disable(&whose, &reason).await?;
            out.done(&format!("node {} is disabled", whose.node_id), &disabled)
        }
        NodeCommand::Enable { whose } => {
            desk.enable(&whose).await?;
            out.done(
                &format!("node {} is enabled", whose.node_id),
                &json!({ "node_id": whose.node_id, "disabled": false }),
            )
        }
        NodeCommand::Drain { whose, reason, lasts } => {
            let hash = desk.drain(&whose, reason, lasts.map(Span::as_secs)).await?;
            let text = format!("drain of node {} is on chain: {hash}", whose.node_id);
            out.done(&text, &json!({ "node_id": whose.node_id, "tx": hash }))
        }
        NodeCommand::Resume { whose } => {
            let hash = desk.resume(&whose).await?;
            let text = format!("drain of node {} has ended on chain: {hash}", whose.node_id);
            out.done(&text, &json!({ "node_id": whose.node_id, "tx": hash }))
        }
    }
}
