//! What tasks do, a file each.

mod health_probe;

use hpc_schema::task::TaskType;

use super::{Handler, Steward};

/// The handler of a type; none if this version has none.
#[must_use]
pub fn handler(kind: TaskType) -> Option<&'static dyn Handler> {
    match kind {
        TaskType::DiagHealthProbe => Some(&health_probe::HealthProbe),
        TaskType::SliceTopologyDiscover
        | TaskType::SliceVmProvision
        | TaskType::SliceVmRelease
        | TaskType::VmLaunch
        | TaskType::VmTerminate
        | TaskType::AllocationProvisionUser
        | TaskType::AllocationDeprovisionUser
        | TaskType::NodePrerequisitesInstall => None,
    }
}

/// Who looks after what tasks leave on the host.
#[must_use]
pub fn stewards() -> Vec<Box<dyn Steward>> {
    Vec::new()
}
