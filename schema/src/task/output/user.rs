use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::text::{AllocationId, HostPath, UserName};

/// Of `allocation.provision_user`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserProvisioned {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The user.
    pub username: UserName,
    /// Its id.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its home.
    pub home: HostPath,
    /// Keys that may log in.
    pub authorized_keys: u32,
    /// Whether it was there already, made for this allocation.
    pub existed: bool,
}

/// Of `allocation.deprovision_user`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserDeprovisioned {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The user.
    pub username: UserName,
    /// Whether there was one.
    pub existed: bool,
    /// Processes that ended by themselves or by SIGTERM.
    pub processes_ended: u32,
    /// Processes that had to be killed.
    pub processes_killed: u32,
    /// Seen afterwards: no such user, no process of its id, no home, no crontab.
    pub verified: bool,
}
