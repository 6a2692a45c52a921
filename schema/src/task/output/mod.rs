//! Results by type. What is not known is absent, never 0.

mod machine;
mod probe;
mod topology;
mod user;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::kind::TaskType;
use crate::code::Code;
use crate::refusal::Refusal;

pub use machine::{
    CleanupProof, DeviceProof, GuestSample, Performance, Readiness, SliceVmProvisioned, SliceVmReleased,
    Timings, VmLaunched, VmProof, VmTerminated,
};
pub use probe::{CheckResult, CheckStatus, HealthProbed, PrerequisitesInstalled};
pub use topology::{
    CandidateSlot, CandidateSummary, FabricDevice, GpuDevice, NvmeDevice, Prerequisites, SliceNetwork,
    Topology,
};
pub use user::{UserDeprovisioned, UserProvisioned};

/// Checks that the result of a completed task is by its type's schema (specification 003). Members that this version does
/// not know are passed over.
///
/// # Errors
/// [`Code::InvalidField`] of `result`, as of bytes that cannot be read.
pub fn check_output(kind: TaskType, raw: &RawValue) -> Result<(), Refusal> {
    let text = raw.get();
    match kind {
        TaskType::SliceTopologyDiscover => read::<Topology>(text),
        TaskType::SliceVmProvision => read::<SliceVmProvisioned>(text),
        TaskType::SliceVmRelease => read::<SliceVmReleased>(text),
        TaskType::VmLaunch => read::<VmLaunched>(text),
        TaskType::VmTerminate => read::<VmTerminated>(text),
        TaskType::AllocationProvisionUser => read::<UserProvisioned>(text),
        TaskType::AllocationDeprovisionUser => read::<UserDeprovisioned>(text),
        TaskType::DiagHealthProbe => read::<HealthProbed>(text),
        TaskType::NodePrerequisitesInstall => read::<PrerequisitesInstalled>(text),
    }
    .map_err(|e| {
        // It may quote the result.
        let what = e.to_string();
        let short: String = what.chars().filter(|c| !c.is_control()).take(256).collect();
        Refusal::field(Code::InvalidField, "result", short).malformed()
    })
}

fn read<T: DeserializeOwned>(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<T>(text).map(drop)
}
