use anyhow::bail;

use super::args::{OrderCommand, SendArgs};
use super::output;
use crate::admin::{self, Order};
use crate::daemon::StartError;
use crate::home::Home;
use crate::store::Store;
use crate::{clock, command};

pub(super) async fn run(home: &Home, what: OrderCommand) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
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
                by: &super::who(),
            };
            output::line(&admin::send(&store, &order, clock::now()).await?)
        }
        OrderCommand::List { node_id, limit, out } => {
            let mut rows = command::history(store.reader(), None, u32::MAX).await?;
            rows.retain(|r| node_id.as_ref().is_none_or(|n| *n == r.node_id));
            rows.truncate(limit);
            let head = [
                "ID", "NODE", "TYPE", "STATE", "BY", "ISSUED", "DEADLINE", "DETAIL",
            ];
            output::list(&rows, out.output, &head, |r| {
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
        OrderCommand::Show { command_id, out } => {
            let Some(row) = command::find(store.reader(), &command_id).await? else {
                bail!("there is no order {command_id}; see: virtengine-provider command list");
            };
            output::value(&row, out.output)
        }
        OrderCommand::Cancel { command_id } => {
            let mut tx = store.begin().await?;
            let cancelled = command::cancel(&mut tx, &command_id).await?;
            tx.commit().await?;
            if !cancelled {
                bail!("no order {command_id} waits; see: virtengine-provider command list");
            }
            output::line(&format!("order {command_id} is taken back"))
        }
    }
}
