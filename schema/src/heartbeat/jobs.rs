//! `jobs` and `services`: what runs on the node, and what runs it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::value::{Label, or_empty};
use crate::refusal::Refusal;

/// Most job ids that one heartbeat may hold.
pub const MAX_ACTIVE_JOBS: usize = 512;

/// A job's id, such as `slurm-12345`, `slice-…`, `vm-…`, `alloc-…`.
pub type JobId = Label<64>;

/// Work on this node; absent is unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Jobs {
    /// What runs on this node: Slurm jobs, leased slices, VMs, containers, user allocations. Where it is absent, what
    /// `active_job_ids` names does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_count: Option<u32>,
    /// What is already assigned to this node and waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_count: Option<u32>,
    /// Completed in the last 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_24h: Option<u32>,
    /// Failed in the last 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_24h: Option<u32>,
    /// Ids of what runs, at most 512.
    #[schemars(with = "Option<Vec<JobId>>", length(max = 512), default)]
    pub active_job_ids: Vec<JobId>,
}

impl Jobs {
    pub(crate) fn read(f: &Fields<'_>) -> Result<Self, Refusal> {
        let active_job_ids = f
            .list("active_job_ids", MAX_ACTIVE_JOBS)?
            .into_iter()
            .enumerate()
            .map(|(i, raw)| {
                let name = format!("active_job_ids[{i}]");
                let text: String =
                    serde_json::from_str(raw.get()).map_err(|_| f.refuse(&name, "must be a string"))?;
                JobId::try_from(text).map_err(|e| f.refuse(&name, e))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            running_count: f.count("running_count")?,
            pending_count: f.count("pending_count")?,
            completed_24h: f.count("completed_24h")?,
            failed_24h: f.count("failed_24h")?,
            active_job_ids,
        })
    }
}

/// The container runtime that the node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerRuntime {
    /// Singularity or Apptainer.
    Singularity,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// None.
    None,
}

/// Daemons on the node; absent is unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Services {
    /// Whether slurmd runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurmd_running: Option<bool>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub slurmd_version: Option<Label<64>>,
    /// Whether munged runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub munge_running: Option<bool>,
    /// Which container runtime there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub container_runtime: Option<ContainerRuntime>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub container_runtime_version: Option<Label<64>>,
}

impl Services {
    pub(crate) fn read(f: &Fields<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            slurmd_running: f.optional("slurmd_running", "true or false")?,
            slurmd_version: f.text("slurmd_version")?,
            munge_running: f.optional("munge_running", "true or false")?,
            container_runtime: f.optional("container_runtime", "singularity, docker, podman or none")?,
            container_runtime_version: f.text("container_runtime_version")?,
        })
    }
}
