use clap::Subcommand;

use super::desk::Desk;
use super::output::{Output, or_dash};

#[derive(Debug, Subcommand)]
pub(super) enum AlertCommand {
    /// Lists what is wrong, and what has ended and is still to be told to a receiver.
    List,
}

pub(super) async fn run(desk: &Desk, AlertCommand::List: AlertCommand, out: Output) -> anyhow::Result<()> {
    let head = [
        "ALERT", "SEVERITY", "CLUSTER", "NODE", "SINCE", "UNTIL", "SUMMARY",
    ];
    out.list(&desk.alerts().await?, &head, |a| {
        vec![
            a.name.clone(),
            a.severity.clone(),
            or_dash(a.cluster_id.as_ref()),
            or_dash(a.node_id.as_ref()),
            a.started_at.clone(),
            or_dash(a.ended_at.as_ref()),
            a.summary.clone(),
        ]
    })
}
