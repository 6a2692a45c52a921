use cosmwasm_std::{DepsMut, Response};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HotRecord, lifecycle};
use hpc_schema::time::UnixSeconds;

use super::resolve::{self, Located};
use super::{change, page};
use crate::cluster::ClusterHot;
use crate::emit::Events;
use crate::error::{ContractError, refuse};

/// A node with its record and its cluster.
pub(crate) fn load(
    deps: cosmwasm_std::Deps<'_>,
    cluster_id: Option<&ClusterId>,
    node_id: &NodeId,
) -> Result<(Located, ClusterHot, HotRecord), ContractError> {
    let node = resolve::node(deps.storage, cluster_id, node_id)?;
    let cluster = ClusterHot::load(deps.storage, &node.cluster_id)?;
    let record = page::record_at(deps.storage, node.place)?.ok_or(ContractError::Corrupt {
        what: "a node's record",
    })?;
    Ok((node, cluster, record))
}

/// A lifecycle refusal in words.
pub(crate) fn refused<T>(code: Code, node: &Located, record: &HotRecord) -> Result<T, ContractError> {
    refuse(
        code,
        format!(
            "node {} of cluster {} is {}",
            node.node_id, node.cluster_id, record.state
        ),
    )
}

pub(crate) fn deregister(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    cluster_id: Option<&ClusterId>,
    node_id: &NodeId,
) -> Result<Response, ContractError> {
    let (node, mut cluster, before) = load(deps.as_ref(), cluster_id, node_id)?;
    let (after, arrows) = match lifecycle::deregister(before, now) {
        Ok(done) => done,
        Err(code) => return refused(code, &node, &before),
    };
    let mut events = Events::default();
    let records = (Some(before), after);
    change::record(
        deps.storage,
        &node,
        &mut cluster,
        records,
        &arrows,
        now,
        &mut events,
    )?;
    Ok(events.into_response())
}
