use cosmwasm_std::{Coin, DepsMut, MessageInfo, Response};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;
use hpc_schema::registry::{JobIds, Params};
use hpc_schema::time::UnixSeconds;

use super::{ClusterHot, ClusterInfo, cold, fields};
use crate::config::params;
use crate::emit;
use crate::error::{ContractError, refuse};

/// What `create_cluster` gives.
#[derive(Debug)]
pub(crate) struct NewCluster {
    pub(crate) cluster_id: ClusterId,
    pub(crate) name: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) gateway_endpoint: Option<String>,
    pub(crate) operators: Vec<String>,
    pub(crate) task_public_key: Option<AgentKey>,
    pub(crate) job_ids: JobIds,
}

pub(crate) fn create(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    info: &MessageInfo,
    new: NewCluster,
) -> Result<Response, ContractError> {
    let params = params::load(deps.storage)?;
    deposit(&params, &info.funds)?;
    let id = new.cluster_id;
    if ClusterInfo::exists(deps.storage, &id) {
        return refuse(Code::ClusterExists, format!("cluster_id {id} is taken"));
    }
    let name = new.name.unwrap_or_else(|| id.to_string());
    fields::name(&name)?;
    if let Some(region) = &new.region {
        fields::region(region)?;
    }
    if let Some(endpoint) = &new.gateway_endpoint {
        fields::gateway_endpoint(endpoint)?;
    }
    let cluster = ClusterInfo {
        owner: info.sender.clone(),
        proposed_owner: None,
        operators: fields::operators(deps.api, &new.operators)?,
        name,
        region: new.region,
        gateway_endpoint: new.gateway_endpoint,
        task_public_key: new.task_public_key,
        job_ids: new.job_ids,
        created_at: now,
        deposit: params.cluster_deposit,
    };
    cluster.save(deps.storage, &id)?;
    let index = cold::next_index(deps.storage, &id);
    ClusterHot::new(index, 0).save(deps.storage, &id, now);
    emit::cluster(id, "created", &info.sender, &cluster)
}

/// Exactly the deposit, or nothing if none is asked.
fn deposit(params: &Params, funds: &[Coin]) -> Result<(), ContractError> {
    let exact = match (&params.cluster_deposit, funds) {
        (None, []) => true,
        (Some(due), [paid]) => paid.denom == due.denom && paid.amount.to_string() == due.amount,
        _ => false,
    };
    if exact {
        return Ok(());
    }
    let due = params
        .cluster_deposit
        .as_ref()
        .map_or("nothing".to_owned(), |c| format!("{}{}", c.amount, c.denom));
    refuse(Code::InvalidDeposit, format!("the deposit of a cluster is {due}"))
}
