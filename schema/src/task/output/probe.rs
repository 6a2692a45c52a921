use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::params::HealthCheck;
use crate::task::text::PackageName;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// Good.
    Pass,
    /// Not as it should be; work can go on.
    Warn,
    /// Not fit for work.
    Fail,
    /// There is nothing of that kind here, or nothing could be read.
    Absent,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Which.
    pub check: HealthCheck,
    /// How it went.
    pub status: CheckStatus,
    /// What was seen.
    pub detail: String,
}

/// Of `diag.health_probe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthProbed {
    /// The worst of the checks: `pass`, `warn` or `fail`.
    pub status: CheckStatus,
    /// Each check that was asked for.
    pub checks: Vec<CheckResult>,
    /// As `uname -r` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// MiB that can be had without swapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available_mib: Option<u64>,
    /// Whether `/dev/kvm` exists; whether it works is another question.
    pub kvm_present: bool,
    /// Whether `vfio_pci` is there.
    pub vfio_loaded: bool,
    /// PCI addresses of GPUs.
    pub gpus: Vec<String>,
    /// Ports of the fabric: device/port and state.
    pub fabric_links: Vec<String>,
}

/// Of `node.prerequisites_install`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrerequisitesInstalled {
    /// `apt` or `dnf`.
    pub manager: String,
    /// Those that were there before.
    pub present: Vec<PackageName>,
    /// Those that were installed now.
    pub installed: Vec<PackageName>,
    /// Whether the host wants a reboot.
    pub reboot_required: bool,
}
