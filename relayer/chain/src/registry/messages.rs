//! A builder for each variant of [`ExecuteMsg`], with the same compile-time check as the queries.

use cosmrs::Any;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::{ExecuteMsg, JobIds, ParamsUpdate, ReportGroup};
use hpc_schema::time::UnixSeconds;

use super::RegistryClient;
use crate::gas::Coin;
use crate::msg::{self, EncodeError};

macro_rules! messages {
    ($($(#[$doc:meta])* $method:ident = $variant:ident { $($field:ident : $ty:ty),* $(,)? };)*) => {
        impl RegistryClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`EncodeError`].
                #[allow(clippy::too_many_arguments, reason = "the fields of the message")]
                pub fn $method(&self, sender: &str, $($field: $ty),*) -> Result<Any, EncodeError> {
                    self.execute(sender, &ExecuteMsg::$variant { $($field),* }, &[])
                }
            )*
        }

        /// Never run: it compiles only while every message has its builder, with all its fields.
        const _: fn(&RegistryClient, ExecuteMsg) = |client, message| match message {
            $(ExecuteMsg::$variant { $($field),* } => drop(client.$method("", $($field),*)),)*
        };
    };
}

impl RegistryClient {
    /// Any message, with funds.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn execute(&self, sender: &str, message: &ExecuteMsg, funds: &[Coin]) -> Result<Any, EncodeError> {
        msg::execute(sender, &self.contract, message, funds)
    }
}

messages! {
    /// Changes parameters.
    update_params = UpdateParams { params: ParamsUpdate };
    /// Offers the admin's role.
    propose_admin = ProposeAdmin { admin: Option<String> };
    /// Takes the admin's role.
    accept_admin = AcceptAdmin {};
    /// Stops or allows registrations.
    pause_registrations = PauseRegistrations { paused: bool };
    /// Creates a cluster without a deposit; with one, use [`RegistryClient::execute`].
    create_cluster = CreateCluster {
        cluster_id: ClusterId, name: Option<String>, region: Option<String>, gateway_endpoint: Option<String>,
        operators: Vec<String>, task_public_key: Option<AgentKey>, job_ids: JobIds,
    };
    /// Changes a cluster.
    update_cluster = UpdateCluster {
        cluster_id: ClusterId, name: Option<String>, region: Option<String>, gateway_endpoint: Option<String>,
        operators: Option<Vec<String>>, job_ids: Option<JobIds>,
    };
    /// Sets or rotates the task key.
    set_task_key = SetTaskKey {
        cluster_id: ClusterId, task_public_key: AgentKey, rotation_signature: Option<String>,
    };
    /// Activates a cluster.
    activate_cluster = ActivateCluster { cluster_id: ClusterId };
    /// Deactivates a cluster.
    deactivate_cluster = DeactivateCluster { cluster_id: ClusterId };
    /// Closes an empty cluster; its deposit comes back.
    close_cluster = CloseCluster { cluster_id: ClusterId };
    /// Offers a cluster.
    propose_cluster_owner = ProposeClusterOwner { cluster_id: ClusterId, owner: Option<String> };
    /// Takes a cluster.
    accept_cluster_owner = AcceptClusterOwner { cluster_id: ClusterId };
    /// Registers a node or rotates its key.
    register_node = RegisterNode {
        node_identity: NodeIdentity, provider_signature: String, provider_pubkey: String,
        rotation_signature: Option<String>,
    };
    /// Deregisters a node.
    deregister_node = DeregisterNode { cluster_id: Option<ClusterId>, node_id: NodeId };
    /// Orders a drain.
    drain_node = DrainNode {
        cluster_id: Option<ClusterId>, node_id: NodeId, reason: Option<String>, until: Option<UnixSeconds>,
    };
    /// Ends a drain.
    resume_node = ResumeNode { cluster_id: Option<ClusterId>, node_id: NodeId };
    /// Relays reports.
    submit_reports = SubmitReports { groups: Vec<ReportGroup> };
    /// Steps silent nodes.
    sweep = Sweep { cluster_id: Option<ClusterId>, limit: Option<u32> };
    /// Removes old records.
    prune = Prune { limit: Option<u32> };
    /// Anchors a digest.
    anchor_digest = Anchor { cluster_id: ClusterId, kind: String, digest: String };
}
