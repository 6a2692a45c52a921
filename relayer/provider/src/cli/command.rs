use serde_json::json;

use super::args::{OrderCommand, SendArgs};
use super::desk::Desk;
use super::output::Output;
use crate::admin::Order;

pub(super) async fn run(desk: &Desk, what: OrderCommand, out: Output) -> anyhow::Result<()> {
    match what {
        OrderCommand::Send(args) => {
            let SendArgs {
                whose,
                kind,
                parameters,
                deadline,
            } = args;
            let order = Order {
                node_id: &whose.node_id,
                cluster_id: whose.cluster_id.as_ref(),
                kind,
                parameters: &parameters,
                deadline_seconds: deadline.as_secs(),
            };
            let id = desk.send(&order).await?;
            out.done(&id, &json!({ "command_id": id }))
        }
        OrderCommand::List { node_id, limit } => {
            let rows = desk.orders(node_id.as_ref(), limit).await?;
            let head = [
                "ID", "NODE", "TYPE", "STATE", "BY", "ISSUED", "DEADLINE", "DETAIL",
            ];
            out.list(&rows, &head, |r| {
                vec![
                    r.command_id.clone(),
                    r.node_id.to_string(),
                    r.kind.to_string(),
                    r.state.as_str().to_owned(),
                    r.issued_by.clone(),
                    r.issued_at.to_string(),
                    r.deadline.to_string(),
                    r.detail.clone().unwrap_or_else(|| "-".to_owned()),
                ]
            })
        }
        OrderCommand::Show { command_id } => out.value(&desk.order(&command_id).await?),
        OrderCommand::Cancel { command_id } => {
            desk.cancel(&command_id).await?;
            out.done(
                &format!("order {command_id} is taken back"),
                &json!({ "command_id": command_id, "state": "cancelled" }),
            )
        }
    }
}
