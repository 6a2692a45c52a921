//! Typed tasks (specifications 003 and 004): what a gateway may ask of a node beyond orders. The catalogue is closed,
//! each task is signed by the cluster's task key, each result by the agent over the task's hash.

mod cancel;
mod catalogue;
mod delivery;
mod envelope;
mod kind;
mod output;
mod params;
mod proof;
mod report;
mod rotation;
mod state;
mod text;

pub use cancel::{Cancellation, cancel_message, verify_cancellation};
pub use catalogue::{CatalogueEntry, catalogue};
pub use delivery::{
    Delivered, MAX_PROGRESS_MESSAGE, ProgressRequest, WaitAnswer, progress_path, result_path, wait_path,
};
pub use envelope::{MAX_TASK_PARAMS_BYTES, Task, TaskHash, TaskScope, task_hash, task_message, verify_task};
pub use kind::{NodeMode, TaskType, TaskTypeError};
pub use output::*;
pub use params::*;
pub use proof::{Proven, RESULT_ACTION, ResultDigests, TaskProof, TaskProofError, audit_target};
pub use report::{MAX_TASK_RESULT_BYTES, TaskOutcome, TaskResult, result_message, verify_result};
pub use rotation::{KeyRotation, rotation_message, verify_rotation};
pub use state::TaskState;
pub use text::{
    AllocationId, BridgeName, HostPath, HttpsUrl, MacAddress, PackageName, PciAddress, Sha256Hex, SlotId,
    SshPublicKey, TextError, UserName, VmId,
};

#[cfg(test)]
mod tests;
