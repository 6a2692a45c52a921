use std::borrow::Cow;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::refusal::Refusal;
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::error::AdminError;
use crate::attest::{self, Pinned};
use crate::command::{self, CommandRow};
use crate::events::{self, NodeEvent};
use crate::page::{Page, Window};
use crate::registry::{self, Known, Listed, Which};
use crate::spool::{self, EndRow};

/// How many orders and events are shown.
const RECENT: u32 = 20;
/// Clusters that are named where several have a node of an id.
const NAMESAKES: u32 = 16;

/// What an operator wants to know of a node.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NodeRow {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its id.
    pub node_id: NodeId,
    /// The chain's state, effective.
    pub state: NodeState,
    /// Why the operator has disabled it, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
    /// Registration epoch.
    pub epoch: u64,
    /// Highest sequence accepted here.
    pub last_received: u32,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<String>,
    /// Highest sequence on chain.
    pub last_on_chain: u32,
    /// Accepted and not yet on chain: newest minus settled.
    pub lag: u32,
    /// The chain's time of the last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_on_chain: Option<String>,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// UDP port that answers latency probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<u16>,
    /// Where peers reach that port, if the node has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_address: Option<String>,
    /// The newest refusal, here or on chain; absent once a later heartbeat was accepted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<Refused>,
}

/// A refusal with what to do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    /// Stable code.
    pub code: Code,
    /// `gateway` or `chain`.
    pub by: Cow<'static, str>,
    /// When.
    pub at: String,
    /// What to do.
    pub remedy: Cow<'static, str>,
}

/// A node in full.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
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
    /// The TPM that is pinned for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Pinned>,
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

/// Clusters that have a node of one id.
pub(super) fn in_several<'c>(clusters: impl Iterator<Item = &'c ClusterId>) -> AdminError {
    let clusters: Vec<_> = clusters.map(ToString::to_string).collect();
    let what = format!("is in several clusters: {}", clusters.join(", "));
    AdminError::field(Code::AmbiguousNode, "node_id", what)
}

impl Admin {
    /// Nodes on record, of one cluster, of one id, or all, in the order of cluster and id.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn nodes(
        &self,
        cluster: Option<&ClusterId>,
        node: Option<&NodeId>,
        window: Window<'_>,
    ) -> Result<Page<NodeRow>, AdminError> {
        let page = registry::listed(self.store.reader(), Which { cluster, node }, window).await?;
        Ok(page.map(|listed| row(&listed)))
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
        Ok(self.one(node_id, cluster_id).await?.known)
    }

    async fn one(&self, node_id: &NodeId, cluster_id: Option<&ClusterId>) -> Result<Listed, AdminError> {
        let which = Which {
            cluster: cluster_id,
            node: Some(node_id),
        };
        let window = Window {
            after: None,
            limit: Some(NAMESAKES),
        };
        let mut found = registry::listed(self.store.reader(), which, window).await?.items;
        if found.len() > 1 {
            return Err(in_several(found.iter().map(|l| &l.known.cluster_id)));
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
        let listed = self.one(node_id, cluster_id).await?;
        let recent = Window {
            after: None,
            limit: Some(RECENT),
        };
        let known = &listed.known;
        let of = (&known.cluster_id, node_id);
        Ok(NodeFull {
            row: row(&listed),
            page: known.chain.page,
            slot: known.chain.slot,
            public_key: known.chain.agent_pubkey.to_base64(),
            attestation: attest::pinned(store.reader(), of.0, of.1).await?,
            drained: known.chain.drain.is_some(),
            events: events::events_of(store.reader(), of.0, of.1, RECENT).await?,
            commands: command::history(store.reader(), Some(of.0), Some(of.1), recent)
                .await?
                .items,
            reports: spool::ends_of(store.reader(), of.0, of.1, reports).await?,
        })
    }
}

fn row(listed: &Listed) -> NodeRow {
    let Listed { known, .. } = listed;
    // The count begins anew with each epoch; before its first heartbeat nothing is known but of the one before.
    let intake = listed
        .intake
        .filter(|(epoch, sequence, _)| *epoch == known.chain.epoch && *sequence > 0);
    let refused = |(code, at_ms): (Code, u64), by: &'static str| Refused {
        code,
        by: by.into(),
        at: UnixSeconds(at_ms / 1000).to_string(),
        remedy: code.remedy().into(),
    };
    // One that something accepted has followed says nothing of the node as it is.
    let accepted_ms = listed.intake.map_or(0, |(.., at)| at);
    let counted_ms = known.chain.last_heartbeat.0.saturating_mul(1_000);
    let here = known.contact.refusal.filter(|r| r.1 >= accepted_ms);
    let here = here.map(|r| (r.1, refused(r, "gateway")));
    let there = listed.refusal.filter(|r| r.1 >= counted_ms);
    let there = there.map(|r| (r.1, refused(r, "chain")));
    let newest = here.into_iter().chain(there).max_by_key(|(at, _)| *at);
    let last_received = intake.map_or(0, |(_, sequence, _)| sequence);
    let heartbeat = known.chain.last_heartbeat;
    NodeRow {
        cluster_id: known.cluster_id.clone(),
        node_id: known.node_id.clone(),
        state: known.chain.state,
        disabled: listed.disabled.clone(),
        epoch: known.chain.epoch,
        last_received,
        received_at: intake.map(|(.., at)| UnixSeconds(at / 1000).to_string()),
        last_on_chain: known.chain.sequence,
        lag: last_received.saturating_sub(known.chain.sequence),
        last_heartbeat_on_chain: (heartbeat.0 > 0).then(|| heartbeat.to_string()),
        address: known.contact.address.map(|a| a.to_string()),
        probe_port: known.contact.probe_port,
        probe_address: known.contact.probe_address.map(|a| a.to_string()),
        last_refusal: newest.map(|(_, r)| r),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Contact, scene};

    /// A node of epoch 1 whose last report, of sequence 1, counts at 1,000 s on chain.
    fn listed(intake: (u64, u32, u64), here: Option<u64>, there: Option<u64>) -> Listed {
        Listed {
            known: Known {
                cluster_id: "hpc-cluster-1".parse().unwrap(),
                node_id: "node-a".parse().unwrap(),
                chain: scene::view(),
                height: 1,
                contact: Contact {
                    refusal: here.map(|at| (Code::NodeDisabled, at)),
                    ..Contact::default()
                },
            },
            intake: Some(intake),
            refusal: there.map(|at| (Code::TimestampExpired, at)),
            disabled: None,
        }
    }

    /// The refusals shown of a node that was accepted at `accepted_ms`.
    fn shown(here: Option<u64>, there: Option<u64>, accepted_ms: u64) -> Option<Code> {
        let listed = listed((1, 7, accepted_ms), here, there);
        row(&listed).last_refusal.map(|r| r.code)
    }

    #[test]
    fn what_was_received_before_a_rotation_is_not_held_against_what_is_on_chain_since() {
        let figures = |intake, epoch, on_chain| {
            let mut listed = listed(intake, None, None);
            listed.known.chain.epoch = epoch;
            listed.known.chain.sequence = on_chain;
            let row = row(&listed);
            (row.last_received, row.received_at.is_some(), row.lag)
        };
        assert_eq!(figures((1, 900, 5_000), 1, 890), (900, true, 10));
        // The key was rotated: by the chain, by the store as well, and with the first heartbeat since.
        assert_eq!(figures((1, 900, 5_000), 2, 0), (0, false, 0));
        assert_eq!(figures((2, 0, 5_000), 2, 0), (0, false, 0));
        assert_eq!(figures((2, 1, 6_000), 2, 0), (1, true, 1));
    }

    #[test]
    fn a_refusal_is_shown_until_something_later_was_accepted() {
        let (here, there) = (Some(Code::NodeDisabled), Some(Code::TimestampExpired));
        assert_eq!(shown(Some(1_500_000), None, 1_400_000), here);
        assert_eq!(shown(Some(1_500_000), None, 1_500_001), None);
        // What the chain refuses was accepted here, and goes on being so.
        assert_eq!(shown(None, Some(1_500_000), 1_600_000), there);
        assert_eq!(shown(None, Some(999_999), 1_600_000), None);
        assert_eq!(shown(Some(1_500_000), Some(1_600_000), 1_550_000), there);
    }
}
