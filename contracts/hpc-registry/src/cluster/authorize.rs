//! Rights: the table of [`fn@hpc_schema::registry::permission`] against the sender, before anything else is done.

use cosmwasm_std::{Addr, Deps};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::registry::{ClusterCreation, ExecuteMsg, Permission, permission};

use super::ClusterInfo;
use crate::config::{self, CONFIG};
use crate::error::{ContractError, refuse};
use crate::node::resolve;

/// Whether `sender` may send `msg`.
///
/// Signatures that a message carries are verified where it is worked off.
pub(crate) fn check(deps: Deps<'_>, sender: &Addr, msg: &ExecuteMsg) -> Result<(), ContractError> {
    let allowed = match permission(msg) {
        Permission::Anyone | Permission::AgentSignature | Permission::ProviderSignature => true,
        Permission::Admin => CONFIG.load(deps.storage)?.admin == *sender,
        Permission::ProposedAdmin => CONFIG.load(deps.storage)?.proposed_admin.as_ref() == Some(sender),
        Permission::ClusterCreation => match config::params::load(deps.storage)?.cluster_creation {
            ClusterCreation::Open => true,
            ClusterCreation::Admin => CONFIG.load(deps.storage)?.admin == *sender,
        },
        Permission::Owner => cluster(deps, msg)?.owner == *sender,
        Permission::OwnerOrOperator => cluster(deps, msg)?.is_staff(sender),
        Permission::ProposedOwner => cluster(deps, msg)?.proposed_owner.as_ref() == Some(sender),
    };
    if allowed {
        return Ok(());
    }
    let needed = match permission(msg) {
        Permission::Admin | Permission::ClusterCreation => "the contract's admin",
        Permission::ProposedAdmin => "the proposed admin",
        Permission::Owner => "the cluster's owner",
        Permission::ProposedOwner => "the proposed owner",
        _ => "the cluster's owner or an operator",
    };
    refuse(Code::NotAuthorized, format!("{sender} is not {needed}"))
}

fn cluster(deps: Deps<'_>, msg: &ExecuteMsg) -> Result<ClusterInfo, ContractError> {
    ClusterInfo::load(deps.storage, &cluster_of(deps, msg)?)
}

/// The cluster that a message is about.
fn cluster_of(deps: Deps<'_>, msg: &ExecuteMsg) -> Result<ClusterId, ContractError> {
    match msg {
        ExecuteMsg::CreateCluster { cluster_id, .. }
        | ExecuteMsg::UpdateCluster { cluster_id, .. }
        | ExecuteMsg::SetTaskKey { cluster_id, .. }
        | ExecuteMsg::ActivateCluster { cluster_id }
        | ExecuteMsg::DeactivateCluster { cluster_id }
        | ExecuteMsg::CloseCluster { cluster_id }
        | ExecuteMsg::ProposeClusterOwner { cluster_id, .. }
        | ExecuteMsg::AcceptClusterOwner { cluster_id }
        | ExecuteMsg::Anchor { cluster_id, .. } => Ok(cluster_id.clone()),
        ExecuteMsg::RegisterNode { node_identity, .. } => Ok(node_identity.cluster_id.clone()),
        ExecuteMsg::DeregisterNode { cluster_id, node_id }
        | ExecuteMsg::DrainNode {
            cluster_id, node_id, ..
        }
        | ExecuteMsg::ResumeNode { cluster_id, node_id } => match cluster_id {
            Some(id) => Ok(id.clone()),
            None => Ok(resolve::node(deps.storage, None, node_id)?.cluster_id),
        },
        ExecuteMsg::UpdateParams { .. }
        | ExecuteMsg::ProposeAdmin { .. }
        | ExecuteMsg::AcceptAdmin {}
        | ExecuteMsg::PauseRegistrations { .. }
        | ExecuteMsg::SubmitReports { .. }
        | ExecuteMsg::Sweep { .. }
        | ExecuteMsg::Prune { .. } => refuse(Code::UnknownCluster, "the message names no cluster"),
    }
}
