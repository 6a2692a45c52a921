//! Results by type. What is not known is absent, never 0.

mod machine;
mod probe;
mod topology;
mod user;

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
