use cosmwasm_std::{DepsMut, Response};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::lifecycle;
use hpc_schema::time::UnixSeconds;

use super::on_record::OnRecord;
use crate::emit::Events;
use crate::error::ContractError;

pub(crate) fn deregister(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    cluster_id: Option<&ClusterId>,
    node_id: &NodeId,
) -> Result<Response, ContractError> {
    let node = OnRecord::load(deps.as_ref(), cluster_id, node_id)?;
    let after = node.judged(lifecycle::deregister(node.record, now))?;
    node.change(deps, after, now, Events::default())
}
