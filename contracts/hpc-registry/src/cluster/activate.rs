use cosmwasm_std::{DepsMut, MessageInfo, Response};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::time::UnixSeconds;

use super::ClusterHot;
use crate::emit;
use crate::error::{ContractError, refuse};

/// Switches a cluster on or off. Nodes keep their state; the sums are kept as if it were on, and shown as 0 while
/// it is not, so that no page is touched.
pub(crate) fn set_active(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    info: &MessageInfo,
    cluster_id: ClusterId,
    active: bool,
) -> Result<Response, ContractError> {
    let mut cluster = ClusterHot::load(deps.storage, &cluster_id)?;
    let action = if active { "activated" } else { "deactivated" };
    if cluster.active == active {
        return refuse(
            Code::InvalidState,
            format!("cluster {cluster_id} is already {action}"),
        );
    }
    cluster.active = active;
    cluster.save(deps.storage, &cluster_id, now);
    emit::cluster(cluster_id, action, &info.sender, &())
}
