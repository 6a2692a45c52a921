//! What the entry points do. Each only takes a message apart and hands it on.

use cosmwasm_std::{Binary, Deps, DepsMut, Env, MessageInfo, Response, to_json_binary};
use hpc_schema::code::Code;
use hpc_schema::registry::{ExecuteMsg, InstantiateMsg, MigrateMsg, QueryMsg};

use crate::cluster::create::NewCluster;
use crate::cluster::update::Change;
use crate::config::query::now;
use crate::error::{ContractError, refuse};
use crate::node::register::Signatures;
use crate::{anchor, cluster, config, heartbeat, node, sweep};

/// Creates the contract.
///
/// # Errors
/// Parameters out of range, an admin that is no address.
pub fn instantiate(
    deps: DepsMut<'_>,
    _env: Env,
    info: MessageInfo,
    msg: InstantiateMsg,
) -> Result<Response, ContractError> {
    config::instantiate::instantiate(deps, &info, msg)
}

/// Changes state; rights are checked first.
///
/// # Errors
/// See [`ContractError`].
pub fn execute(
    deps: DepsMut<'_>,
    env: Env,
    info: MessageInfo,
    msg: ExecuteMsg,
) -> Result<Response, ContractError> {
    cluster::authorize::check(deps.as_ref(), &info.sender, &msg)?;
    if !info.funds.is_empty() && !matches!(msg, ExecuteMsg::CreateCluster { .. }) {
        return refuse(Code::InvalidDeposit, "only create_cluster takes coins");
    }
    let time = now(&env);
    match msg {
        ExecuteMsg::UpdateParams { params } => config::params::update(deps, &info, params),
        ExecuteMsg::ProposeAdmin { admin } => config::admin::propose(deps, &info, admin.as_deref()),
        ExecuteMsg::AcceptAdmin {} => config::admin::accept(deps, &info),
        ExecuteMsg::PauseRegistrations { paused } => config::admin::pause(deps, &info, paused),
        ExecuteMsg::CreateCluster {
            cluster_id,
            name,
            region,
            gateway_endpoint,
            operators,
            task_public_key,
            job_ids,
        } => {
            let new = NewCluster {
                cluster_id,
                name,
                region,
                gateway_endpoint,
                operators,
                task_public_key,
                job_ids,
            };
            cluster::create::create(deps, time, &info, new)
        }
        ExecuteMsg::UpdateCluster {
            cluster_id,
            name,
            region,
            gateway_endpoint,
            operators,
            job_ids,
        } => {
            let change = Change {
                name,
                region,
                gateway_endpoint,
                operators,
                job_ids,
            };
            cluster::update::update(deps, &info, cluster_id, change)
        }
        ExecuteMsg::SetTaskKey {
            cluster_id,
            task_public_key,
            rotation_signature,
        } => {
            let signature = rotation_signature.as_deref();
            cluster::task_key::set(deps, &env, &info, cluster_id, task_public_key, signature)
        }
        ExecuteMsg::ActivateCluster { cluster_id } => {
            cluster::activate::set_active(deps, time, &info, cluster_id, true)
        }
        ExecuteMsg::DeactivateCluster { cluster_id } => {
            cluster::activate::set_active(deps, time, &info, cluster_id, false)
        }
        ExecuteMsg::CloseCluster { cluster_id } => cluster::close::close(deps, &info, cluster_id),
        ExecuteMsg::ProposeClusterOwner { cluster_id, owner } => {
            cluster::transfer::propose(deps, &info, cluster_id, owner.as_deref())
        }
        ExecuteMsg::AcceptClusterOwner { cluster_id } => cluster::transfer::accept(deps, &info, cluster_id),
        ExecuteMsg::RegisterNode {
            node_identity,
            provider_signature,
            provider_pubkey,
            rotation_signature,
        } => {
            let signatures = Signatures {
                provider_signature: &provider_signature,
                provider_pubkey: &provider_pubkey,
                rotation_signature: rotation_signature.as_deref(),
            };
            node::register::register(deps, &env, &node_identity, &signatures)
        }
        ExecuteMsg::DeregisterNode { cluster_id, node_id } => {
            node::deregister::deregister(deps, time, cluster_id.as_ref(), &node_id)
        }
        ExecuteMsg::DrainNode {
            cluster_id,
            node_id,
            reason,
            until,
        } => node::drain::drain(deps, time, &info, (cluster_id.as_ref(), &node_id), reason, until),
        ExecuteMsg::ResumeNode { cluster_id, node_id } => {
            node::drain::resume(deps, time, &info, (cluster_id.as_ref(), &node_id))
        }
        ExecuteMsg::SubmitReports { groups } => heartbeat::submit::submit(deps, &env, &groups),
        ExecuteMsg::Sweep { cluster_id, limit } => sweep::walk::sweep(deps, time, cluster_id, limit),
        ExecuteMsg::Prune { limit } => sweep::prune::prune(deps, time, limit),
        ExecuteMsg::Anchor {
            cluster_id,
            kind,
            digest,
        } => anchor::anchor(deps, &env, &info, cluster_id, kind, digest),
    }
}

/// Answers questions about the state at a block.
///
/// # Errors
/// See [`ContractError`].
pub fn query(deps: Deps<'_>, env: Env, msg: QueryMsg) -> Result<Binary, ContractError> {
    let answer = match msg {
        QueryMsg::Config {} => to_json_binary(&config::query::config(deps, &env)?),
        QueryMsg::Params {} => to_json_binary(&config::params::load(deps.storage)?),
        QueryMsg::Cluster { cluster_id } => to_json_binary(&cluster::query::cluster(deps, &env, cluster_id)?),
        QueryMsg::Clusters {
            owner,
            start_after,
            limit,
        } => to_json_binary(&cluster::query::clusters(
            deps,
            &env,
            owner.as_deref(),
            start_after.as_deref(),
            limit,
        )?),
        QueryMsg::Aggregate { cluster_id } => {
            to_json_binary(&cluster::query::aggregate(deps, &env, cluster_id)?)
        }
        QueryMsg::Node { cluster_id, node_id } => {
            to_json_binary(&node::query::node(deps, &env, cluster_id.as_ref(), &node_id)?)
        }
        QueryMsg::Nodes {
            filter,
            start_after,
            limit,
        } => to_json_binary(&node::query::nodes(
            deps,
            &env,
            &filter,
            start_after.as_deref(),
            limit,
        )?),
        QueryMsg::NodesByIds { cluster_id, node_ids } => {
            to_json_binary(&node::query::nodes_by_ids(deps, &env, &cluster_id, node_ids)?)
        }
        QueryMsg::Relay { cluster_id, node_ids } => {
            to_json_binary(&node::query::relay(deps, &env, &cluster_id, node_ids)?)
        }
        QueryMsg::JobsAtRisk {
            cluster_id,
            start_after,
            limit,
        } => to_json_binary(&node::query::jobs_at_risk(
            deps,
            &env,
            &cluster_id,
            start_after.as_deref(),
            limit,
        )?),
        QueryMsg::RawPage { cluster_id, page } => {
            to_json_binary(&node::raw::page(deps, &env, &cluster_id, page)?)
        }
        QueryMsg::Anchors {
            cluster_id,
            kind,
            start_after,
            limit,
        } => to_json_binary(&anchor::list(
            deps,
            &env,
            &cluster_id,
            kind.as_deref(),
            start_after.as_deref(),
            limit,
        )?),
        QueryMsg::Anchor {
            cluster_id,
            kind,
            digest,
        } => to_json_binary(&anchor::one(deps, &env, &cluster_id, &kind, &digest)?),
    };
    Ok(answer?)
}

/// Takes the storage to this version's layout.
///
/// # Errors
/// Storage of another contract, or of a later layout.
pub fn migrate(deps: DepsMut<'_>, env: Env, msg: MigrateMsg) -> Result<Response, ContractError> {
    config::migrate::migrate(deps, &env, &msg)
}
