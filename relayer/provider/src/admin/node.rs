use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::refusal::Refusal;
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::clock;
use crate::command::{self, CommandRow};
use crate::control::{self, Disabled};
use crate::events::{self, NodeEvent};
use crate::registry::{self, Known};
use crate::spool::{self, EndRow};
use crate::store::{Store, StoreError};

/// How many orders and events are shown.
const RECENT: u32 = 20;
/// Longest reason in bytes.
const MAX_REASON: usize = 256;

/// What an operator wants to know of a node.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct NodeRow {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its id.
    pub node_id: NodeId,
    /// The chain's state, effective.
    pub state: NodeState,
    /// Why the operator has disabled it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
    /// Registration epoch.
    pub epoch: u64,
    /// Highest sequence accepted here.
    pub last_received: u32,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_at: Option<String>,
    /// Highest sequence on chain.
    pub last_on_chain: u32,
    /// Accepted and not yet on chain: newest minus settled.
    pub lag: u32,
    /// The chain's time of the last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_on_chain: Option<String>,
    /// Where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// UDP port that answers latency probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<u16>,
    /// The newest refusal, here or on chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<Refused>,
}

/// A refusal with what to do.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Refused {
    /// Stable code.
    pub code: Code,
    /// `gateway` or `chain`.
    pub by: &'static str,
    /// When.
    pub at: String,
    /// What to do.
    pub remedy: &'static str,
}

/// A node in full.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct NodeFull {
    /// As in the list.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Its page on chain.
    pub page: u16,
    /// Its slot there.
    pub slot: u8,
    /// The agent's key.
    pub public_key: String,
    /// Whether a provider's drain is in force.
    pub drained: bool,
    /// What the contract told of it, newest first.
    pub events: Vec<NodeEvent>,
    /// Its newest orders.
    pub commands: Vec<CommandRow>,
    /// How its newest reports ended.
    pub reports: Vec<EndRow>,
}

/// How the audit log names a node.
pub(super) fn target(cluster: &ClusterId, node: &NodeId) -> String {
    format!("node {cluster}/{node}")
}

impl Admin {
    /// Every node on record, or those of one cluster, or of one id.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn nodes(
        &self,
        cluster: Option<&ClusterId>,
        node: Option<&NodeId>,
    ) -> Result<Vec<NodeRow>, StoreError> {
        let disabled = control::disabled(self.store.reader()).await?;
        let mut rows = Vec::new();
        for known in registry::known(self.store.reader()).await? {
            if cluster.is_none_or(|c| *c == known.cluster_id) && node.is_none_or(|n| *n == known.node_id) {
                rows.push(row(&self.store, &known, &disabled).await?);
            }
        }
        Ok(rows)
    }

    /// The one node of this id.
    ///
    /// # Errors
    /// If there is none, or several.
    pub async fn resolve(
        &self,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
    ) -> Result<Known, AdminError> {
        let mut found: Vec<Known> = registry::known(self.store.reader())
            .await?
            .into_iter()
            .filter(|k| k.node_id == *node_id && cluster_id.is_none_or(|c| *c == k.cluster_id))
            .collect();
        if found.len() > 1 {
            let clusters: Vec<_> = found.iter().map(|k| k.cluster_id.to_string()).collect();
            let what = format!("is in several clusters: {}", clusters.join(", "));
            return Err(AdminError::field(Code::AmbiguousNode, "node_id", what));
        }
        found.pop().ok_or_else(|| {
            let what = format!("{node_id} is not on record (virtengine-provider node list)");
            AdminError::Missing(Refusal::field(Code::UnknownNode, "node_id", what))
        })
    }

    /// One node in full, with its newest events, orders and ended reports.
    ///
    /// # Errors
    /// If there is none, or several.
    pub async fn node(
        &self,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
        reports: u32,
    ) -> Result<NodeFull, AdminError> {
        let store = &self.store;
        let known = self.resolve(node_id, cluster_id).await?;
        let of = (&known.cluster_id, node_id);
        let disabled = control::disabled(store.reader()).await?;
        Ok(NodeFull {
            row: row(store, &known, &disabled).await?,
            page: known.chain.page,
            slot: known.chain.slot,
            public_key: known.chain.agent_pubkey.to_base64(),
            drained: known.chain.drain.is_some(),
            events: events::events_of(store.reader(), of.0, of.1, RECENT).await?,
            commands: command::history(store.reader(), Some(of.0), Some(of.1), RECENT).await?,
            reports: spool::ends_of(store.reader(), of.0, of.1, reports).await?,
        })
    }

    /// Refuses the node's traffic from now on; the node is told the reason.
    ///
    /// # Errors
    /// If there is no such node, or the reason is too long.
    pub async fn disable(
        &self,
        by: &Actor,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
        reason: &str,
    ) -> Result<Disabled, AdminError> {
        let mut act = Act::begin(&self.store, by, "node.disable", format!("node {node_id}")).await?;
        let done = async {
            if reason.trim().is_empty() || reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
                let what = format!("must be 1 to {MAX_REASON} bytes of one line");
                return Err(AdminError::field(Code::InvalidField, "reason", what));
            }
            let known = self.resolve(node_id, cluster_id).await?;
            act.aim(target(&known.cluster_id, &known.node_id));
            let disabled = Disabled {
                cluster_id: known.cluster_id,
                node_id: known.node_id,
                reason: reason.to_owned(),
                by: by.name.clone(),
                disabled_at: clock::now(),
            };
            control::disable(act.conn(), &disabled).await?;
            Ok(disabled)
        };
        let done = done.await;
        act.end(done, json!({ "reason": reason })).await
    }

    /// Takes the node's traffic again.
    ///
    /// # Errors
    /// If there is no such node, or it is not disabled.
    pub async fn enable(
        &self,
        by: &Actor,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
    ) -> Result<(), AdminError> {
        let mut act = Act::begin(&self.store, by, "node.enable", format!("node {node_id}")).await?;
        let done = async {
            let known = self.resolve(node_id, cluster_id).await?;
            act.aim(target(&known.cluster_id, &known.node_id));
            if control::enable(act.conn(), &known.cluster_id, &known.node_id).await? {
                return Ok(());
            }
            let what = "the node is not disabled";
            Err(AdminError::field(Code::InvalidState, "node_id", what))
        };
        let done = done.await;
        act.end(done, json!({})).await
    }
}

async fn row(store: &Store, known: &Known, disabled: &[Disabled]) -> Result<NodeRow, StoreError> {
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
    let newest = here.into_iter().chain(there).max_by_key(|(at, _)| *at);
    let last_received = intake.as_ref().map_or(0, |i| i.acked_sequence);
    let heartbeat = known.chain.last_heartbeat;
    Ok(NodeRow {
        cluster_id: cluster.clone(),
        node_id: node.clone(),
        state: known.chain.state,
        disabled: disabled
            .iter()
            .find(|d| d.cluster_id == *cluster && d.node_id == *node)
            .map(|d| d.reason.clone()),
        epoch: known.chain.epoch,
        last_received,
        received_at: intake.map(|i| UnixSeconds(i.received_at / 1000).to_string()),
        last_on_chain: known.chain.sequence,
        lag: last_received.saturating_sub(known.chain.sequence),
        last_heartbeat_on_chain: (heartbeat.0 > 0).then(|| heartbeat.to_string()),
        address: known.contact.address.map(|a| a.to_string()),
        probe_port: known.contact.probe_port,
        last_refusal: newest.map(|(_, r)| r),
    })
}
