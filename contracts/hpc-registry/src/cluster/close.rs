use cosmwasm_std::{BankMsg, DepsMut, MessageInfo, Response, coin};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;

use super::{ClusterHot, ClusterInfo, cold};
use crate::emit;
use crate::error::{ContractError, refuse};
use crate::keys;

/// Removes a cluster that is switched off and has no node on record, and gives its deposit to the owner.
///
/// Only a removed cluster gives its deposit back: who kept the id without it would squat for nothing. Deregistered
/// nodes count until `prune` removes them. What is left under the cluster's number (pages of zeros, free slots,
/// anchors) is never read again, because numbers are not reused.
pub(crate) fn close(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    cluster_id: ClusterId,
) -> Result<Response, ContractError> {
    let cluster = ClusterInfo::load(deps.storage, &cluster_id)?;
    let hot = ClusterHot::load(deps.storage, &cluster_id)?;
    if hot.active {
        return refuse(
            Code::InvalidState,
            format!("cluster {cluster_id} is active; deactivate it first"),
        );
    }
    let nodes = hot.aggregate.on_record();
    if nodes > 0 {
        return refuse(
            Code::InvalidState,
            format!(
                "cluster {cluster_id} has {nodes} nodes on record; deregister them, and prune them after retention"
            ),
        );
    }
    cold::remove(deps.storage, &cluster_id, hot.index);
    for key in [
        keys::cluster_hot(&cluster_id),
        keys::gpu_types(hot.index),
        keys::cluster_cursor(hot.index),
    ] {
        deps.storage.remove(&key);
    }
    let response = emit::cluster(cluster_id, "closed", &info.sender, &())?;
    Ok(match cluster.deposit {
        None => response,
        Some(deposit) => {
            let amount = deposit
                .amount
                .parse()
                .map_err(|_| ContractError::Corrupt { what: "a deposit" })?;
            response.add_message(BankMsg::Send {
                to_address: cluster.owner.into_string(),
                amount: vec![coin(amount, deposit.denom)],
            })
        }
    })
}
