use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, list};
use crate::task::text::PackageName;

/// Of `slice.topology_discover`: there is nothing to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyDiscover {}

impl Check for TopologyDiscover {
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }
}

/// One check of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthCheck {
    /// The kernel's version is known.
    Kernel,
    /// Memory is left.
    Memory,
    /// Machines can be accelerated.
    Kvm,
    /// Devices can be handed through.
    Vfio,
    /// Every GPU on the bus answers.
    Gpu,
    /// The fabric's links are up.
    Fabric,
}

impl HealthCheck {
    /// Every check.
    pub const ALL: [Self; 6] = [
        Self::Kernel,
        Self::Memory,
        Self::Kvm,
        Self::Vfio,
        Self::Gpu,
        Self::Fabric,
    ];
}

/// Of `diag.health_probe`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthProbe {
    /// Which checks; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<HealthCheck>>,
}

impl Check for HealthProbe {
    fn check(&self) -> Result<(), (&'static str, String)> {
        match &self.checks {
            Some(checks) => list("checks", checks, 1..=HealthCheck::ALL.len()),
            None => Ok(()),
        }
    }
}

/// Of `node.prerequisites_install`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrerequisitesInstall {
    /// Packages of the distribution; the node's policy must name each.
    #[schemars(length(min = 1, max = 64))]
    pub packages: Vec<PackageName>,
}

impl Check for PrerequisitesInstall {
    fn check(&self) -> Result<(), (&'static str, String)> {
        list("packages", &self.packages, 1..=64)
    }
}
