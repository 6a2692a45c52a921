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
    /// It reaches nothing; its port 22 is a free port of this host's loopback.
    Isolated,
    /// It reaches what this host reaches, the host's own loopback too; its port 22 as before. A policy must allow it.
    User,
}

/// What an image is. It is never guessed: a guest could have written what a guess would find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageFormat {
    /// QEMU's, versions 2 and 3, without backing file, external data file or encryption.
    #[default]
    Qcow2,
    /// The bytes of the disk.
    Raw,
}

impl ImageFormat {
    /// The word in JSON and for QEMU.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// Longest `user_data` in bytes.
const MAX_USER_DATA: usize = 16 << 10;
/// Longest `ready_line` in bytes.
const MAX_READY_LINE: usize = 128;

/// Of `vm.launch` (specification 002).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmLaunch {
    /// The machine.
    pub vm_id: VmId,
    /// Base image, in a directory that the node's policy allows; never written.
    pub image_path: HostPath,
    /// Its digest, checked before each use.
    pub image_sha256: Sha256Hex,
    /// What the image is; absent: qcow2.
    #[serde(default)]
    pub image_format: ImageFormat,
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
    /// It ends so many seconds after its start, whatever becomes of the gateway; the task process sees to it.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub lease_seconds: u64,
    /// The user that cloud-init makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_username: Option<UserName>,
    /// Who may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ssh_public_keys: Vec<SshPublicKey>,
    /// cloud-init's user data instead of what the two members above would make: `#cloud-config` or `#!`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16_384))]
    pub user_data: Option<String>,
    /// The launch is done when the serial console has shown this; absent: when the machine runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub ready_line: Option<String>,
    /// Seconds in which that line must come.
    #[serde(default = "three_hundred")]
    #[schemars(range(min = 1, max = 600))]
    pub ready_timeout_seconds: u32,
}

fn three_hundred() -> u32 {
    300
}

impl std::fmt::Debug for VmLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // User data holds secrets of tenants.
        f.debug_struct("VmLaunch")
            .field("vm_id", &self.vm_id)
            .field("image_path", &self.image_path)
            .field("vcpu_count", &self.vcpu_count)
            .field("memory_mib", &self.memory_mib)
            .field("lease_seconds", &self.lease_seconds)
            .finish_non_exhaustive()
    }
}

impl Check for VmLaunch {
    fn check(&self) -> Result<(), (&'static str, String)> {
        within("vcpu_count", self.vcpu_count, 1..=1024)?;
        within("memory_mib", self.memory_mib, 64..=16_777_216)?;
        if let Some(gib) = self.disk_gib {
            within("disk_gib", gib, 1..=65_536)?;
        }
        within("lease_seconds", self.lease_seconds, 60..=2_592_000)?;
        within("ready_timeout_seconds", self.ready_timeout_seconds, 1..=600)?;
        if let Some(data) = &self.user_data {
            if data.len() > MAX_USER_DATA {
                return Err(("user_data", format!("has more than {MAX_USER_DATA} bytes")));
            }
            if !data.starts_with("#cloud-config\n") && !data.starts_with("#!") {
                return Err(("user_data", "must begin with #cloud-config or #!".to_owned()));
            }
            if self.default_username.is_some() || !self.ssh_public_keys.is_empty() {
                let what = "takes the place of default_username and ssh_public_keys";
                return Err(("user_data", what.to_owned()));
            }
        }
        if let Some(line) = &self.ready_line {
            let printable = line.bytes().all(|b| (b' '..=b'~').contains(&b));
            if line.is_empty() || line.len() > MAX_READY_LINE || !printable {
                let what = format!("must be 1 to {MAX_READY_LINE} printable ASCII characters");
                return Err(("ready_line", what));
            }
        }
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
