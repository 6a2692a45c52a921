use anyhow::bail;
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::time::UnixSeconds;
use serde::Serialize;

use super::args::NodeCommand;
use super::output;
use crate::daemon::StartError;
use crate::home::Home;
use crate::registry::{self, Known};
use crate::spool::{self, EndRow};
use crate::store::Store;

/// What an operator wants to know of a node.
#[derive(Debug, Serialize)]
struct Row {
    cluster_id: ClusterId,
    node_id: NodeId,
    state: NodeState,
    epoch: u64,
    /// Highest sequence accepted here.
    last_received: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<String>,
    /// Highest sequence on chain.
    last_on_chain: u32,
    /// Accepted and not yet on chain: newest minus settled.
    lag: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heartbeat_on_chain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refusal: Option<Refused>,
}

/// The newest refusal, here or on chain, with what to do.
#[derive(Debug, Serialize)]
struct Refused {
    code: Code,
    by: &'static str,
    at: String,
    remedy: &'static str,
}

/// A node in full.
#[derive(Debug, Serialize)]
struct Full {
    #[serde(flatten)]
    row: Row,
    page: u16,
    slot: u8,
    public_key: String,
    drained: bool,
    reports: Vec<EndRow>,
}

pub(super) async fn run(home: &Home, command: NodeCommand) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
    match command {
        NodeCommand::List(out) => {
            let mut rows = Vec::new();
            for known in registry::known(store.reader()).await? {
                rows.push(row(&store, &known).await?);
            }
            let head = [
                "CLUSTER",
                "NODE",
                "STATE",
                "RECEIVED",
                "ON CHAIN",
                "LAG",
                "LAST REFUSAL",
            ];
            output::list(&rows, out.output, &head, |r| {
                vec![
                    r.cluster_id.to_string(),
                    r.node_id.to_string(),
                    r.state.to_string(),
                    r.last_received.to_string(),
                    r.last_on_chain.to_string(),
                    r.lag.to_string(),
                    r.last_refusal
                        .as_ref()
                        .map_or_else(|| "-".to_owned(), |x| format!("{} at {}", x.code, x.at)),
                ]
            })
        }
        NodeCommand::Show {
            node_id,
            cluster_id,
            reports,
            out,
        } => {
            let mut found: Vec<Known> = registry::known(store.reader())
                .await?
                .into_iter()
                .filter(|k| k.node_id == node_id && cluster_id.as_ref().is_none_or(|c| *c == k.cluster_id))
                .collect();
            if found.len() > 1 {
                let clusters: Vec<_> = found.iter().map(|k| k.cluster_id.to_string()).collect();
                bail!(
                    "several clusters have {node_id}: {}; name one with --cluster-id",
                    clusters.join(", ")
                );
            }
            let Some(known) = found.pop() else {
                bail!("{node_id} is not on record; see: virtengine-provider node list");
            };
            let reports = spool::ends_of(store.reader(), &known.cluster_id, &node_id, reports).await?;
            let full = Full {
                row: row(&store, &known).await?,
                page: known.chain.page,
                slot: known.chain.slot,
                public_key: known.chain.agent_pubkey.to_base64(),
                drained: known.chain.drain.is_some(),
                reports,
            };
            output::value(&full, out.output)
        }
    }
}

async fn row(store: &Store, known: &Known) -> anyhow::Result<Row> {
    let (cluster, node) = (&known.cluster_id, &known.node_id);
    let intake = spool::intake_of(store.reader(), cluster, node).await?;
    let intake = intake.filter(|i| i.epoch == known.chain.epoch);
    let on_chain = spool::last_refusal(store.reader(), cluster, node).await?;
    let refused = |code: Code, by, at_ms: u64| Refused {
        code,
        by,
        at: UnixSeconds(at_ms / 1000).to_string(),
        remedy: code.remedy(),
    };
    let here = known
        .contact
        .refusal
        .map(|(code, at)| (at, refused(code, "gateway", at)));
    let there = on_chain.map(|r| (r.at, refused(r.code, "chain", r.at)));
    let last_refusal = here
        .into_iter()
        .chain(there)
        .max_by_key(|(at, _)| *at)
        .map(|(_, r)| r);
    let last_received = intake.as_ref().map_or(0, |i| i.acked_sequence);
    let heartbeat = known.chain.last_heartbeat;
    Ok(Row {
        cluster_id: cluster.clone(),
        node_id: node.clone(),
        state: known.chain.state,
        epoch: known.chain.epoch,
        last_received,
        received_at: intake.map(|i| UnixSeconds(i.received_at / 1000).to_string()),
        last_on_chain: known.chain.sequence,
        lag: last_received.saturating_sub(known.chain.sequence),
        last_heartbeat_on_chain: (heartbeat.0 > 0).then(|| heartbeat.to_string()),
        address: known.contact.address.map(|a| a.to_string()),
        last_refusal,
    })
}
