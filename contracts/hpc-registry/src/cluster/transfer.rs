use cosmwasm_std::{DepsMut, MessageInfo, Response};
use hpc_schema::id::ClusterId;

use super::{ClusterInfo, fields};
use crate::emit;
use crate::error::ContractError;

pub(crate) fn propose(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    cluster_id: ClusterId,
    owner: Option<&str>,
) -> Result<Response, ContractError> {
    let mut cluster = ClusterInfo::load(deps.storage, &cluster_id)?;
    cluster.proposed_owner = owner
        .map(|text| fields::address(deps.api, "owner", text))
        .transpose()?;
    cluster.save(deps.storage, &cluster_id)?;
    emit::cluster(
        cluster_id,
        "owner_proposed",
        &info.sender,
        &cluster.proposed_owner,
    )
}

/// The proposed owner takes over. Operators stay: the new owner's first act may be to name others.
pub(crate) fn accept(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    cluster_id: ClusterId,
) -> Result<Response, ContractError> {
    let mut cluster = ClusterInfo::load(deps.storage, &cluster_id)?;
    cluster.owner = info.sender.clone();
    cluster.proposed_owner = None;
    cluster.save(deps.storage, &cluster_id)?;
    emit::cluster(cluster_id, "owner_changed", &info.sender, &cluster.owner)
}
