//! `capacity`: what the node has and what of it is free (specification 000, validateCapacity; decisions 21–24).

use schemars::JsonSchema;
use serde::Serialize;

use super::fields::Fields;
use super::value::{Label, or_empty};
use crate::code::Code;
use crate::refusal::Refusal;

/// Cores, memory, GPUs and storage. GB means GiB; absent is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Capacity {
    /// Cores, at least 1.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub cpu_cores_total: u32,
    /// Cores free.
    #[schemars(range(max = 2_147_483_647))]
    pub cpu_cores_available: u32,
    /// Cores in use by work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores_allocated: Option<u32>,
    /// Memory in GiB, at least 1.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub memory_gb_total: u32,
    /// Memory free, in GiB.
    #[schemars(range(max = 2_147_483_647))]
    pub memory_gb_available: u32,
    /// Memory in use by work, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_gb_allocated: Option<u32>,
    /// GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_total: Option<u32>,
    /// GPUs free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_available: Option<u32>,
    /// GPUs in use by work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_allocated: Option<u32>,
    /// Such as `NVIDIA A100 80GB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = or_empty)]
    pub gpu_type: Option<Label<64>>,
    /// Storage in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_gb_total: Option<u32>,
    /// Storage free, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_gb_available: Option<u32>,
    /// Storage in use by work, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_gb_allocated: Option<u32>,
}

impl Capacity {
    pub(crate) fn read(f: &Fields<'_>) -> Result<Self, Refusal> {
        let required = |name: &str| {
            f.count(name)
                .and_then(|n| n.ok_or_else(|| f.refuse(name, "is required")))
        };
        let capacity = Self {
            cpu_cores_total: required("cpu_cores_total")?,
            cpu_cores_available: required("cpu_cores_available")?,
            cpu_cores_allocated: f.count("cpu_cores_allocated")?,
            memory_gb_total: required("memory_gb_total")?,
            memory_gb_available: required("memory_gb_available")?,
            memory_gb_allocated: f.count("memory_gb_allocated")?,
            gpus_total: f.count("gpus_total")?,
            gpus_available: f.count("gpus_available")?,
            gpus_allocated: f.count("gpus_allocated")?,
            gpu_type: f.text("gpu_type")?,
            storage_gb_total: f.count("storage_gb_total")?,
            storage_gb_available: f.count("storage_gb_available")?,
            storage_gb_allocated: f.count("storage_gb_allocated")?,
        };
        capacity.check()?;
        Ok(capacity)
    }

    /// The rules that bind several fields.
    ///
    /// # Errors
    /// [`Code::InvalidCapacity`] with the field: a total of cores or memory below 1, available above total,
    /// allocated + available above total, or a figure of GPUs or storage without its total.
    pub fn check(&self) -> Result<(), Refusal> {
        at_least_one("cpu_cores", self.cpu_cores_total)?;
        fits(
            "cpu_cores",
            Some(self.cpu_cores_total),
            Some(self.cpu_cores_available),
            self.cpu_cores_allocated,
        )?;
        at_least_one("memory_gb", self.memory_gb_total)?;
        fits(
            "memory_gb",
            Some(self.memory_gb_total),
            Some(self.memory_gb_available),
            self.memory_gb_allocated,
        )?;
        fits("gpus", self.gpus_total, self.gpus_available, self.gpus_allocated)?;
        fits(
            "storage_gb",
            self.storage_gb_total,
            self.storage_gb_available,
            self.storage_gb_allocated,
        )
    }
}

fn refuse(resource: &str, suffix: &str, what: String) -> Refusal {
    Refusal::field(
        Code::InvalidCapacity,
        format!("capacity.{resource}_{suffix}"),
        what,
    )
}

fn at_least_one(resource: &str, total: u32) -> Result<(), Refusal> {
    if total == 0 {
        Err(refuse(resource, "total", "must be at least 1".into()))
    } else {
        Ok(())
    }
}

fn fits(
    resource: &str,
    total: Option<u32>,
    available: Option<u32>,
    allocated: Option<u32>,
) -> Result<(), Refusal> {
    let Some(total) = total else {
        // Without a total nothing bounds the other two, and schedulers would read them.
        return match (available, allocated) {
            (None, None) => Ok(()),
            _ => Err(refuse(
                resource,
                "total",
                "is required beside available or allocated".into(),
            )),
        };
    };
    let (available, allocated) = (available.unwrap_or(0), allocated.unwrap_or(0));
    if available > total {
        return Err(refuse(
            resource,
            "available",
            format!("{available} is above {resource}_total {total}"),
        ));
    }
    if u64::from(available) + u64::from(allocated) > u64::from(total) {
        return Err(refuse(
            resource,
            "allocated",
            format!("{allocated} allocated + {available} available are above {resource}_total {total}"),
        ));
    }
    Ok(())
}
