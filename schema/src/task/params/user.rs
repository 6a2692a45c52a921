use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, list, within};
use crate::task::text::{AllocationId, SshPublicKey, UserName};

/// Of `allocation.provision_user`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProvisionUser {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The user to make.
    pub username: UserName,
    /// Its id, within the node's policy; absent: the next free one there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000, max = 2_000_000_000))]
    pub uid: Option<u32>,
    /// Who may log in.
    #[schemars(length(min = 1, max = 32))]
    pub ssh_public_keys: Vec<SshPublicKey>,
    /// What it may use at most.
    #[serde(default)]
    pub limits: UserLimits,
}

/// What a user may use at most; absent: the system's own limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserLimits {
    /// Processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 1_000_000))]
    pub processes: Option<u32>,
    /// Open files a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 1_048_576))]
    pub open_files: Option<u32>,
    /// Memory a process may lock, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_memory_mib: Option<u32>,
}

impl Check for ProvisionUser {
    fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(uid) = self.uid {
            within("uid", uid, 1000..=2_000_000_000)?;
        }
        if let Some(n) = self.limits.processes {
            within("limits.processes", n, 16..=1_000_000)?;
        }
        if let Some(n) = self.limits.open_files {
            within("limits.open_files", n, 64..=1_048_576)?;
        }
        list("ssh_public_keys", &self.ssh_public_keys, 1..=32)
    }
}

/// Of `allocation.deprovision_user`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeprovisionUser {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The user that was made for it.
    pub username: UserName,
    /// Seconds in which its processes may end by themselves.
    #[serde(default = "ten")]
    #[schemars(range(min = 0, max = 300))]
    pub grace_seconds: u32,
}

fn ten() -> u32 {
    10
}

impl Check for DeprovisionUser {
    fn check(&self) -> Result<(), (&'static str, String)> {
        within("grace_seconds", self.grace_seconds, 0..=300)
    }
}
