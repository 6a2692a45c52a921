use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, list, within};
use crate::task::text::{HostPath, Sha256Hex, SshPublicKey, UserName, VmId};

/// How a machine's instructions are carried out.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    /// By the best that was seen to work here.
    #[default]
    Auto,
    /// Linux's KVM.
    Kvm,
    /// DragonFly's NVMM.
    Nvmm,
    /// In software.
    Tcg,
}

impl Accel {
    /// The word in JSON and for QEMU.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Nvmm => "nvmm",
            Self::Tcg => "tcg",
        }
    }
}

/// What network a machine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VmNetwork {
    /// None.
    #[default]
    None,
    /// QEMU's own, with the guest's port 22 on a free port of this host's loopback.
    User,
}

/// Of `vm.launch` (specification 002).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmLaunch {
    /// The machine.
    pub vm_id: VmId,
    /// Base image, in a directory that the node's policy allows; never written.
    pub image_path: HostPath,
    /// Its digest, checked before each use.
    pub image_sha256: Sha256Hex,
    /// Virtual CPUs.
    #[schemars(range(min = 1, max = 1024))]
    pub vcpu_count: u32,
    /// Memory, MiB.
    #[schemars(range(min = 64, max = 16_777_216))]
    pub memory_mib: u32,
    /// Size of its disk, GiB; absent: the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub disk_gib: Option<u32>,
    /// How instructions are carried out.
    #[serde(default)]
    pub accel: Accel,
    /// What network it has.
    #[serde(default)]
    pub network: VmNetwork,
    /// It ends so many seconds after its start, whatever happens to gateway and agent.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub lease_seconds: u64,
    /// The user that cloud-init makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_username: Option<UserName>,
    /// Who may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ssh_public_keys: Vec<SshPublicKey>,
}

impl Check for VmLaunch {
    fn check(&self) -> Result<(), (&'static str, String)> {
        within("vcpu_count", self.vcpu_count, 1..=1024)?;
        within("memory_mib", self.memory_mib, 64..=16_777_216)?;
        if let Some(gib) = self.disk_gib {
            within("disk_gib", gib, 1..=65_536)?;
        }
        within("lease_seconds", self.lease_seconds, 60..=2_592_000)?;
        if self.default_username.is_none() && !self.ssh_public_keys.is_empty() {
            return Err((
                "default_username",
                "must be there with ssh_public_keys".to_owned(),
            ));
        }
        list("ssh_public_keys", &self.ssh_public_keys, 0..=32)
    }
}

/// Of `vm.terminate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmTerminate {
    /// The machine.
    pub vm_id: VmId,
    /// Seconds in which the guest may shut down before it is killed.
    #[serde(default = "thirty")]
    #[schemars(range(min = 0, max = 900))]
    pub graceful_timeout_seconds: u32,
}

fn thirty() -> u32 {
    30
}

impl Check for VmTerminate {
    fn check(&self) -> Result<(), (&'static str, String)> {
        within("graceful_timeout_seconds", self.graceful_timeout_seconds, 0..=900)
    }
}
