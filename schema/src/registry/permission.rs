//! Who may send what: one exhaustive table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::msg::ExecuteMsg;

/// The right that a message needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// The contract's admin.
    Admin,
    /// The address that the admin has proposed.
    ProposedAdmin,
    /// Anyone, or the admin, as the parameter `cluster_creation` says.
    ClusterCreation,
    /// The cluster's owner.
    Owner,
    /// The cluster's owner or one of its operators.
    OwnerOrOperator,
    /// The address that the owner has proposed.
    ProposedOwner,
    /// Anyone who carries a signature of the cluster's owner or an operator.
    ProviderSignature,
    /// Anyone who carries signatures of agents.
    AgentSignature,
    /// Anyone.
    Anyone,
}

/// The right that `msg` needs; checked before anything else is done with it.
#[must_use]
pub fn permission(msg: &ExecuteMsg) -> Permission {
    match msg {
        ExecuteMsg::UpdateParams { .. }
        | ExecuteMsg::ProposeAdmin { .. }
        | ExecuteMsg::PauseRegistrations { .. } => Permission::Admin,
        ExecuteMsg::AcceptAdmin {} => Permission::ProposedAdmin,
        ExecuteMsg::CreateCluster { .. } => Permission::ClusterCreation,
        ExecuteMsg::UpdateCluster { .. }
        | ExecuteMsg::SetTaskKey { .. }
        | ExecuteMsg::ActivateCluster { .. }
        | ExecuteMsg::DeactivateCluster { .. }
        | ExecuteMsg::CloseCluster { .. }
        | ExecuteMsg::ProposeClusterOwner { .. } => Permission::Owner,
        ExecuteMsg::AcceptClusterOwner { .. } => Permission::ProposedOwner,
        ExecuteMsg::RegisterNode { .. } => Permission::ProviderSignature,
        ExecuteMsg::DeregisterNode { .. }
        | ExecuteMsg::DrainNode { .. }
        | ExecuteMsg::ResumeNode { .. }
        | ExecuteMsg::Anchor { .. } => Permission::OwnerOrOperator,
        ExecuteMsg::SubmitReports { .. } => Permission::AgentSignature,
        ExecuteMsg::Sweep { .. } | ExecuteMsg::Prune { .. } => Permission::Anyone,
    }
}
