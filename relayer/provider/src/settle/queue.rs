use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::registry::Params;
use hpc_schema::report::MAX_AGE_SECONDS;

use super::apart::{Apart, NodeKey};
use super::claims::PageId;
use super::plan::Waiting;
use crate::db;
use crate::registry::{Node, Registry};
use crate::spool::{self, End, EndedAs, Meta};
use crate::store::{Store, StoreError, text};

/// A state that would lapse within this time brings its report forward.
const LAPSE_MARGIN_MS: u64 = 20_000;
/// A report within this time of its five minutes would not arrive any more.
const AGE_MARGIN_SECONDS: u64 = 10;

/// What waits and can be planned, with the record of each node.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<Waiting>,
    pub(super) of: Vec<(Meta, Arc<Node>)>,
}

impl Queue {
    /// Without the reports of these pages.
    pub(super) fn without(self, pages: &BTreeSet<PageId>) -> Self {
        if pages.is_empty() {
            return self;
        }
        self.of_those(|w, _| !pages.contains(&(w.cluster_id.clone(), w.page)))
    }

    /// Without the nodes that let others pass.
    pub(super) fn past(self, apart: &Apart<NodeKey>, now_ms: u64) -> Self {
        self.of_those(|_, meta| !apart.holds(&(meta.cluster_id.clone(), meta.node_id.clone()), now_ms))
    }

    fn of_those(self, so: impl Fn(&Waiting, &Meta) -> bool) -> Self {
        let (waiting, of) = self
            .waiting
            .into_iter()
            .zip(self.of)
            .filter(|(w, (meta, _))| so(w, meta))
            .unzip();
        Self { waiting, of }
    }

    /// The nodes of which a report waits.
    pub(super) fn nodes(&self) -> BTreeSet<NodeKey> {
        let key = |(meta, _): &(Meta, _)| (meta.cluster_id.clone(), meta.node_id.clone());
        self.of.iter().map(key).collect()
    }
}

/// Reads what waits. Reports that the chain would not count any more, or has counted already, end here.
pub(super) async fn read(store: &Store, registry: &Registry, now_ms: u64) -> Result<Queue, StoreError> {
    let params = registry.params();
    let mut queue = Queue::default();
    let mut over = Vec::new();
    for meta in spool::metas(store.reader()).await? {
        // Not read from the chain yet, or a newer epoch's: the next sync decides, unless time has.
        let node = registry
            .node(&meta.cluster_id, &meta.node_id)
            .filter(|n| n.chain.epoch >= meta.epoch);
        let end = match &node {
            Some(node) => end_here(&meta, node, now_ms),
            None => too_old(&meta, now_ms),
        };
        if let Some(end) = end {
            if end.ended == EndedAs::Refused {
                let code = Code::TimestampExpired;
                tracing::warn!(cluster = %meta.cluster_id, node = %meta.node_id, sequence = meta.sequence, %code,
                    "an accepted report grew too old before it could be sent; look at the chain's and the relayer's condition");
                registry.refused(&meta.cluster_id, &meta.node_id, code, meta.sequence);
            }
            over.push((meta, end));
            continue;
        }
        let Some(node) = node else { continue };
        queue.waiting.push(waiting(&meta, &node, &params));
        queue.of.push((meta, node));
    }
    if !over.is_empty() {
        let mut tx = store.begin().await?;
        for (meta, end) in over {
            spool::drop_waiting(
                &mut tx,
                &meta.cluster_id,
                &meta.node_id,
                meta.sequence,
                &end,
                now_ms,
            )
            .await?;
        }
        tx.commit().await?;
    }
    Ok(queue)
}

fn end_here(meta: &Meta, node: &Node, now_ms: u64) -> Option<End> {
    if node.chain.epoch > meta.epoch {
        // Came back from a dead transaction after a newer registration.
        return Some(End::local(EndedAs::Superseded, Some(Code::SupersededByRotation)));
    }
    if node.chain.sequence >= meta.sequence {
        // Somebody else has relayed it, or a later one.
        return Some(End::local(EndedAs::OnChain, Some(Code::StaleSequence)));
    }
    too_old(meta, now_ms)
}

fn too_old(meta: &Meta, now_ms: u64) -> Option<End> {
    let age = (now_ms / 1000).saturating_sub(u64::from(meta.time));
    (age > MAX_AGE_SECONDS - AGE_MARGIN_SECONDS)
        .then(|| End::local(EndedAs::Refused, Some(Code::TimestampExpired)))
}

fn waiting(meta: &Meta, node: &Node, params: &Params) -> Waiting {
    let lapses = matches!(
        node.chain.recorded_state,
        NodeState::Active | NodeState::Stale | NodeState::Draining | NodeState::Drained | NodeState::Offline
    );
    let at = node
        .chain
        .last_heartbeat
        .plus(u64::from(params.heartbeat_timeout))
        .0
        .saturating_mul(1000);
    let known = meta.section_digest == Some(node.section_digest);
    Waiting {
        cluster_id: meta.cluster_id.clone(),
        page: node.chain.page,
        slot: node.chain.slot,
        queued_at: meta.queued_at,
        lapses_at: lapses.then(|| at.saturating_sub(LAPSE_MARGIN_MS)),
        time: meta.time,
        section_len: if known { 0 } else { meta.section_len },
    }
}

/// The nodes of which a report has been accepted and has not ended.
pub(super) async fn unsettled(store: &Store) -> Result<BTreeSet<(ClusterId, NodeId)>, StoreError> {
    let rows = db::query(
        "SELECT cluster_id, node_id FROM waiting UNION SELECT cluster_id, node_id FROM batch_report",
    )
    .fetch_all(store.reader())
    .await?;
    rows.iter()
        .map(|row| Ok((text(row, "cluster_id")?, text(row, "node_id")?)))
        .collect()
}

/// How long an accepted report may be on its way into the database, of which [`unsettled`] knows nothing yet, from the request's
/// arrival; no cluster is swept while the database is behind for a part of it.
const ON_THE_WAY_MS: u64 = 10_000;

/// The nodes of which a report was accepted a moment ago, and is not on chain.
pub(super) fn just_accepted(
    nodes: &[Arc<Node>],
    now_ms: u64,
) -> impl Iterator<Item = (ClusterId, NodeId)> + '_ {
    nodes
        .iter()
        .filter(move |n| n.acked > n.chain.sequence && now_ms.saturating_sub(n.received_at) < ON_THE_WAY_MS)
        .map(|n| (n.cluster_id.clone(), n.node_id.clone()))
}

/// How many other nodes of the written pages may change state before `until` (UNIX seconds): they cost gas
/// that a simulation now does not see.
pub(super) fn may_step(nodes: &[Arc<Node>], chosen: &[&Arc<Node>], params: &Params, until: u64) -> u64 {
    let pages: HashMap<(&ClusterId, u16), ()> = chosen
        .iter()
        .map(|n| ((&n.cluster_id, n.chain.page), ()))
        .collect();
    let mine: BTreeSet<(&ClusterId, &NodeId)> = chosen.iter().map(|n| (&n.cluster_id, &n.node_id)).collect();
    let count = nodes
        .iter()
        .filter(|n| pages.contains_key(&(&n.cluster_id, n.chain.page)))
        .filter(|n| !mine.contains(&(&n.cluster_id, &n.node_id)))
        .filter(|n| super::duty::would_step(n, params, hpc_schema::time::UnixSeconds(until)))
        .count();
    u64::try_from(count).unwrap_or(u64::MAX)
}
