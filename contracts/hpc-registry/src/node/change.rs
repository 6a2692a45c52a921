//! One node's record changed outside a batch: page, sums and events follow.

use cosmwasm_std::Storage;
use hpc_schema::node::{HotRecord, NodeState, Transition};
use hpc_schema::time::UnixSeconds;

use super::page::{HotPage, SectionPage};
use super::resolve::Located;
use crate::cluster::ClusterHot;
use crate::emit::Events;
use crate::error::ContractError;
use crate::keys::Place;

/// Writes `after` where `before` stood, keeps the sums right and tells of the arrows.
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
    events.transitions(
        &node.cluster_id,
        &node.node_id,
        (before.as_ref(), &after),
        transitions,
        now,
    );
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
