use std::time::Duration;

use hpc_schema::command::CommandType;
use tokio::time::sleep;

use super::args::{NodeCommand, Whose};
use super::output;
use crate::admin::{self, NodeRow};
use crate::clock;
use crate::config::Config;
use crate::daemon::StartError;
use crate::home::Home;
use crate::store::Store;

const HEAD: [&str; 9] = [
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

pub(super) async fn run(home: &Home, config: &Config, command: NodeCommand) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
    match command {
        NodeCommand::List(out) => output::list(&admin::list(&store).await?, out.output, &HEAD, cells),
        NodeCommand::Show { whose, reports, out } => {
            let full = admin::show(&store, &whose.node_id, whose.cluster_id.as_ref(), reports).await?;
            output::value(&full, out.output)
        }
        NodeCommand::Watch { node_id, every, out } => loop {
            let mut rows = admin::list(&store).await?;
            rows.retain(|r| node_id.as_ref().is_none_or(|n| *n == r.node_id));
            output::line(&format!("-- {}", clock::now()))?;
            output::list(&rows, out.output, &HEAD, cells)?;
            sleep(every.duration().max(Duration::from_millis(200))).await;
        },
        NodeCommand::Disable { whose, reason } => {
            let Whose { node_id, cluster_id } = whose;
            admin::disable(
                &store,
                &node_id,
                cluster_id.as_ref(),
                &reason,
                &super::who(),
                clock::now(),
            )
            .await?;
            output::line(&format!("node {node_id} is disabled"))
        }
        NodeCommand::Enable { whose } => {
            admin::enable(&store, &whose.node_id, whose.cluster_id.as_ref()).await?;
            output::line(&format!("node {} is enabled", whose.node_id))
        }
        NodeCommand::Drain { whose, reason, lasts } => {
            let until = lasts.map(|span| clock::now().plus(span.as_secs()));
            let of = (&whose.node_id, whose.cluster_id.as_ref());
            let hash = admin::drain(home, config, &store, of, CommandType::Drain, (reason, until)).await?;
            output::line(&format!("drain of node {} is on chain: {hash}", whose.node_id))
        }
        NodeCommand::Resume { whose } => {
            let of = (&whose.node_id, whose.cluster_id.as_ref());
            let hash = admin::drain(home, config, &store, of, CommandType::Resume, (None, None)).await?;
            output::line(&format!(
                "drain of node {} has ended on chain: {hash}",
                whose.node_id
            ))
        }
    }
}

fn cells(r: &NodeRow) -> Vec<String> {
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
