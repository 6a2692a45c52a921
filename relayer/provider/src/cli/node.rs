use hpc_schema::command::CommandType;
use serde_json::json;

use super::args::NodeCommand;
use super::output::Output;
use super::{watch, who};
use crate::admin::{Admin, Drain, NodeRow};
use crate::clock;

pub(super) const HEAD: [&str; 9] = [
    "CLUSTER",
    "NODE",
    "STATE",
    "RECEIVED",
    "AT",
    "ON CHAIN",
    "LAG",
    "LAST REFUSAL",
    "REMEDY",
];

pub(super) async fn run(desk: &Admin, command: NodeCommand, out: Output) -> anyhow::Result<()> {
    let by = who();
    match command {
        NodeCommand::List => out.list(&desk.nodes(None, None).await?, &HEAD, cells),
        NodeCommand::Show { whose, reports } => {
            let full = desk
                .node(&whose.node_id, whose.cluster_id.as_ref(), reports)
                .await?;
            out.value(&full)
        }
        NodeCommand::Watch { node_id, every } => {
            watch::run(desk, node_id.as_ref(), every.duration(), out).await
        }
        NodeCommand::Disable { whose, reason } => {
            let disabled = desk
                .disable(&by, &whose.node_id, whose.cluster_id.as_ref(), &reason)
                .await?;
            out.done(&format!("node {} is disabled", whose.node_id), &disabled)
        }
        NodeCommand::Enable { whose } => {
            desk.enable(&by, &whose.node_id, whose.cluster_id.as_ref())
                .await?;
            out.done(
                &format!("node {} is enabled", whose.node_id),
                &json!({ "node_id": whose.node_id, "disabled": false }),
            )
        }
        NodeCommand::Drain { whose, reason, lasts } => {
            let drain = Drain {
                node_id: &whose.node_id,
                cluster_id: whose.cluster_id.as_ref(),
                kind: CommandType::Drain,
                reason,
                until: lasts.map(|span| clock::now().plus(span.as_secs())),
            };
            let hash = desk.drain(&by, drain).await?;
            let text = format!("drain of node {} is on chain: {hash}", whose.node_id);
            out.done(&text, &json!({ "node_id": whose.node_id, "tx": hash }))
        }
        NodeCommand::Resume { whose } => {
            let resume = Drain {
                node_id: &whose.node_id,
                cluster_id: whose.cluster_id.as_ref(),
                kind: CommandType::Resume,
                reason: None,
                until: None,
            };
            let hash = desk.drain(&by, resume).await?;
            let text = format!("drain of node {} has ended on chain: {hash}", whose.node_id);
            out.done(&text, &json!({ "node_id": whose.node_id, "tx": hash }))
        }
    }
}

pub(super) fn cells(r: &NodeRow) -> Vec<String> {
    let state = match &r.disabled {
        Some(_) => format!("{} (disabled)", r.state),
        None => r.state.to_string(),
    };
    let refusal = r.last_refusal.as_ref();
    vec![
        r.cluster_id.to_string(),
        r.node_id.to_string(),
        state,
        r.last_received.to_string(),
        r.received_at.clone().unwrap_or_else(|| "-".to_owned()),
        r.last_on_chain.to_string(),
        r.lag.to_string(),
        refusal.map_or_else(|| "-".to_owned(), |x| format!("{} at {}", x.code, x.at)),
        refusal.map_or_else(String::new, |x| x.remedy.to_owned()),
    ]
}
