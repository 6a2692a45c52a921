use cosmwasm_std::{DepsMut, MessageInfo, Response};
use hpc_schema::id::ClusterId;
use hpc_schema::registry::JobIds;

use super::{ClusterInfo, fields};
use crate::emit;
use crate::error::ContractError;

/// What `update_cluster` changes.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) name: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) gateway_endpoint: Option<String>,
    pub(crate) operators: Option<Vec<String>>,
    pub(crate) job_ids: Option<JobIds>,
}

pub(crate) fn update(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    cluster_id: ClusterId,
    change: Change,
) -> Result<Response, ContractError> {
    let mut cluster = ClusterInfo::load(deps.storage, &cluster_id)?;
    if let Some(name) = change.name {
        fields::name(&name)?;
        cluster.name = name;
    }
    if let Some(region) = change.region {
        cluster.region = cleared_or(region, fields::region)?;
    }
    if let Some(endpoint) = change.gateway_endpoint {
        cluster.gateway_endpoint = cleared_or(endpoint, fields::gateway_endpoint)?;
    }
    if let Some(operators) = change.operators {
        cluster.operators = fields::operators(deps.api, &operators)?;
    }
    if let Some(job_ids) = change.job_ids {
        cluster.job_ids = job_ids;
    }
    cluster.save(deps.storage, &cluster_id)?;
    emit::cluster(cluster_id, "updated", &info.sender, &cluster)
}

/// An empty text takes the field away.
fn cleared_or(
    text: String,
    check: impl Fn(&str) -> Result<(), ContractError>,
) -> Result<Option<String>, ContractError> {
    if text.is_empty() {
        return Ok(None);
    }
    check(&text)?;
    Ok(Some(text))
}
