//! Drains ordered by the owner or an operator (protocol decision 18).

use cosmwasm_std::{DepsMut, MessageInfo, Response, Storage, from_json, to_json_vec};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::lifecycle;
use hpc_schema::registry::{Drain, Event};
use hpc_schema::time::UnixSeconds;

use super::on_record::OnRecord;
use crate::cluster::fields;
use crate::config::params;
use crate::emit::Events;
use crate::error::{ContractError, refuse};
use crate::keys::Place;

const DEFAULT_SECONDS: u64 = 7 * 86_400;
const MAX_SECONDS: u64 = 30 * 86_400;

/// The order on record, if one is in force.
pub(crate) fn order(storage: &dyn Storage, place: Place) -> Option<Drain> {
    from_json(storage.get(&place.drain())?).ok()
}

pub(crate) fn drain(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    info: &MessageInfo,
    (cluster_id, node_id): (Option<&ClusterId>, &NodeId),
    reason: Option<String>,
    until: Option<UnixSeconds>,
) -> Result<Response, ContractError> {
    if let Some(reason) = &reason {
        fields::plain("reason", reason, 1, 128)?;
    }
    let until = until.unwrap_or_else(|| now.plus(DEFAULT_SECONDS));
    if until <= now || until > now.plus(MAX_SECONDS) {
        return refuse(
            Code::InvalidField,
            format!("until must be after block time {now} and at most 30 days later, is {until}"),
        );
    }
    let params = params::load(deps.storage)?;
    let node = OnRecord::load(deps.as_ref(), cluster_id, node_id)?;
    let after = node.judged(lifecycle::drain(node.record, &params, now))?;
    let order = Drain {
        ordered_by: info.sender.to_string(),
        ordered_at: now,
        until,
        reason,
    };
    deps.storage.set(&node.node.place.drain(), &to_json_vec(&order)?);
    let mut events = Events::default();
    events.push(Event::Drain {
        cluster_id: node.node.cluster_id.clone(),
        node_id: node.node.node_id.clone(),
        ordered_by: order.ordered_by,
        until: until.0,
    });
    node.change(deps, after, now, events)
}

pub(crate) fn resume(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    info: &MessageInfo,
    (cluster_id, node_id): (Option<&ClusterId>, &NodeId),
) -> Result<Response, ContractError> {
    let params = params::load(deps.storage)?;
    let node = OnRecord::load(deps.as_ref(), cluster_id, node_id)?;
    let after = node.judged(lifecycle::resume(node.record, &params, now))?;
    deps.storage.remove(&node.node.place.drain());
    let mut events = Events::default();
    events.push(Event::Resume {
        cluster_id: node.node.cluster_id.clone(),
        node_id: node.node.node_id.clone(),
        ordered_by: info.sender.to_string(),
    });
    node.change(deps, after, now, events)
}
