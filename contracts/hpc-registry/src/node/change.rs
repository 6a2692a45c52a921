//! Changes of nodes' records: page, sums and events follow.

use cosmwasm_std::Storage;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HotRecord, NodeState, Transition};
use hpc_schema::time::UnixSeconds;

use super::list::node_ids;
use super::page::{HotPage, SectionPage};
use super::resolve::Located;
use crate::cluster::ClusterHot;
use crate::emit::{Events, Passage};
use crate::error::ContractError;
use crate::keys::Place;

/// What a message did to one slot of a page.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) slot: u8,
    pub(crate) before: HotRecord,
    pub(crate) after: HotRecord,
    pub(crate) transitions: Vec<Transition>,
}

/// Tells of several nodes of a page.
pub(crate) fn tell(
    storage: &dyn Storage,
    cluster_id: &ClusterId,
    (cluster, page): (u32, u16),
    changes: &[Change],
    now: UnixSeconds,
    events: &mut Events,
) -> Result<(), ContractError> {
    let ids = node_ids(storage, cluster, page, changes.iter().map(|c| c.slot))?;
    let passage = |(c, id): (&Change, NodeId)| Passage::new(id, (Some(&c.before), &c.after), &c.transitions);
    let passages: Vec<_> = changes.iter().zip(ids).map(passage).collect();
    events.passages(cluster_id, &passages, now);
    Ok(())
}

/// Writes one node's `after` where `before` stood, keeps the sums right and tells of the arrows.
pub(crate) fn record(
    storage: &mut dyn Storage,
    node: &Located,
    cluster: &mut ClusterHot,
    (before, after): (Option<HotRecord>, HotRecord),
    transitions: &[Transition],
    now: UnixSeconds,
    events: &mut Events,
) -> Result<(), ContractError> {
    let Place {
        cluster: index,
        page,
        slot,
    } = node.place;
    let mut hot = HotPage::load(storage, index, page)?;
    hot.set(slot, &after.encode());
    hot.save(storage, index, page);
    // GPU types only matter to schedulable nodes.
    let counts = |r: &HotRecord| r.is_schedulable(true) && r.gpus > 0;
    let gpu_type = if before.as_ref().is_some_and(counts) || counts(&after) {
        SectionPage::load(storage, index, page)?.gpu_type(slot)
    } else {
        0
    };
    if let Some(before) = &before {
        cluster.aggregate.sub(before, gpu_type);
    }
    cluster.aggregate.add(&after, gpu_type);
    cluster.save(storage, &node.cluster_id, now);
    note_deregistered(storage, node.place, before.as_ref(), &after);
    let passage = Passage::new(node.node_id.clone(), (before.as_ref(), &after), transitions);
    events.passages(&node.cluster_id, &[passage], now);
    Ok(())
}

/// Puts a node that has just been deregistered on `prune`'s list; no order to drain holds any more.
pub(crate) fn note_deregistered(
    storage: &mut dyn Storage,
    place: Place,
    before: Option<&HotRecord>,
    after: &HotRecord,
) {
    if after.state == NodeState::Deregistered && before.is_none_or(|b| b.state != NodeState::Deregistered) {
        storage.set(&place.due(after.since), &[1]);
        if before.is_some_and(|b| b.drain) {
            storage.remove(&place.drain());
        }
    }
}
