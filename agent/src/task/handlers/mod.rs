//! What tasks do, a file each.

mod admission;
mod checked;
mod health_probe;
mod packages;
mod slice_host;
mod slice_image;
mod slice_proof;
mod slice_provision;
mod slice_ready;
mod slice_release;
mod slice_seed;
mod slice_steward;
mod slice_work;
mod topology_discover;
mod user_deprovision;
mod user_provision;
mod vm_launch;
mod vm_prepare;
mod vm_ready;
mod vm_steward;
mod vm_terminate;

pub use health_probe::probe;
use hpc_schema::task::TaskType;

use super::safety::Safety;
use super::{Handler, Leftovers, Steward};

/// The handler of a type; none if this version has none.
#[must_use]
pub fn handler(kind: TaskType) -> Option<&'static dyn Handler> {
    match kind {
        TaskType::DiagHealthProbe => Some(&health_probe::HealthProbe),
        TaskType::SliceTopologyDiscover => Some(&topology_discover::Discover),
        TaskType::VmLaunch => Some(&vm_launch::Launch),
        TaskType::VmTerminate => Some(&vm_terminate::Terminate),
        TaskType::AllocationProvisionUser => Some(&user_provision::Provision),
        TaskType::AllocationDeprovisionUser => Some(&user_deprovision::Deprovision),
        TaskType::SliceVmProvision => Some(&slice_provision::Provision),
        TaskType::SliceVmRelease => Some(&slice_release::Release),
        TaskType::NodePrerequisitesInstall => Some(&packages::Install),
    }
}

/// Who looks after what tasks leave on the host.
#[must_use]
pub fn stewards() -> Vec<Box<dyn Steward>> {
    vec![
        Box::new(vm_steward::VmSteward::default()),
        Box::new(slice_steward::SliceSteward::default()),
        Box::new(Leftovers::default()),
        Box::new(Safety::default()),
    ]
}
