//! Whose tasks count on this node. Pinned from the registration when the task domain first starts; the file is the
//! domain's own, so that whoever takes over the heartbeat cannot put another key in its place.

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::task::{KeyRotation, TaskScope, verify_rotation};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::host::TaskDir;
use crate::files::Durability;
use crate::state::{Registration, read_json, write_json};

/// Whose tasks count on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The chain.
    pub chain_id: String,
    /// The registry contract.
    pub contract: String,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// This node.
    pub node_id: NodeId,
    /// The cluster's task key.
    pub task_key: AgentKey,
    /// UNIX seconds since which tasks are written down here: what was issued before may have been carried out.
    pub since: u64,
}

impl Authority {
    /// As the registration says it.
    ///
    /// # Errors
    /// It names no task key.
    pub fn of(registration: &Registration, now: u64) -> Result<Self, Failure> {
        let Some(task_key) = registration.task_public_key else {
            let what = "no task key was pinned at registration; register the node again with a token of a provider that has one";
            return Err(Failure::new(Code::TaskSignatureInvalid, what));
        };
        Ok(Self {
            chain_id: registration.chain_id.clone(),
            contract: registration.contract.clone(),
            cluster_id: registration.cluster_id.clone(),
            node_id: registration.node_id.clone(),
            task_key,
            since: now,
        })
    }

    /// The pinned one; pinned now if there is none.
    ///
    /// # Errors
    /// IO; the registration names another node, cluster or contract than what was pinned.
    pub fn pinned(dir: &TaskDir, registration: &Registration, now: u64) -> Result<Self, Failure> {
        let Some(pinned) = Self::kept(dir)? else {
            let fresh = Self::of(registration, now)?;
            fresh.save(dir)?;
            return Ok(fresh);
        };
        let same = pinned.chain_id == registration.chain_id
            && pinned.contract == registration.contract
            && pinned.cluster_id == registration.cluster_id
            && pinned.node_id == registration.node_id;
        if same {
            return Ok(pinned);
        }
        let what = format!(
            "this node was registered anew as {}/{}; tasks were taken for {}/{} up to now. If that is meant: virtengine-node-agent tasks trust",
            registration.cluster_id, registration.node_id, pinned.cluster_id, pinned.node_id
        );
        Err(Failure::new(Code::IdentityMismatch, what))
    }

    /// The pinned one; none if no task was ever taken here.
    ///
    /// # Errors
    /// IO, form.
    pub fn kept(dir: &TaskDir) -> Result<Option<Self>, Failure> {
        Ok(read_json::<Self>(&dir.authority())?)
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, dir: &TaskDir) -> Result<(), Failure> {
        Ok(write_json(&dir.authority(), self, 0o600, Durability::Synced)?)
    }

    /// To whom tasks must be bound.
    #[must_use]
    pub fn scope(&self) -> TaskScope<'_> {
        TaskScope {
            chain_id: &self.chain_id,
            contract: &self.contract,
            cluster_id: &self.cluster_id,
            node_id: &self.node_id,
        }
    }

    /// Follows rotations of the task key; whether it changed.
    ///
    /// # Errors
    /// A step that the key before did not sign.
    pub fn rotate(&mut self, steps: &[KeyRotation]) -> Result<bool, Failure> {
        let of = (self.chain_id.as_str(), self.contract.as_str(), &self.cluster_id);
        let key = verify_rotation(&self.task_key, steps, of, &ZebraVerifier)?;
        let changed = key != self.task_key;
        self.task_key = key;
        Ok(changed)
    }
}
