//! What is known of the GPUs of a node.

use serde::{Deserialize, Serialize};

use crate::probe::percent;

/// Why a GPU that works as hard as its power limit lets it is no faster.
pub const POWER_CAP: &str = "power cap";

/// One GPU. What its driver does not tell is absent.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// `nvidia` or `amd`.
    pub vendor: String,
    /// Number, as its tools count.
    pub index: u32,
    /// PCI address, lower case, such as `0000:1b:00.0`.
    pub pci: Option<String>,
    /// Unique id.
    pub uuid: Option<String>,
    /// Type, such as `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// It does not answer any more: fallen off the bus, or broken.
    pub lost: bool,
    /// Why nothing is told of it though it is there, in words of its driver or of what is missing: its figures are unknown.
    pub refused: Option<String>,
    /// Percent of the last period in which something ran on it.
    pub utilization: Option<u8>,
    /// Bytes.
    pub memory_total: Option<u64>,
    /// Bytes.
    pub memory_used: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<i32>,
    /// Milliwatts.
    pub power_mw: Option<u64>,
    /// Milliwatts.
    pub power_limit_mw: Option<u64>,
    /// Memory errors that were corrected, since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not, since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Rows of memory that were replaced.
    pub remapped: Option<Remapped>,
    /// NVLink: how many of how many links are up.
    pub links: Option<Links>,
    /// What slows it down, other than idleness and settings.
    pub throttled_by: Vec<String>,
    /// Multi-instance mode: number of instances; none if it is off or unknown.
    pub mig_instances: Option<u32>,
    /// Compute processes on it.
    pub processes: Option<u32>,
}

impl Gpu {
    /// It can be used: it answers, and its driver tells of it.
    #[must_use]
    pub fn works(&self) -> bool {
        !self.lost && self.refused.is_none()
    }
}

/// Replaced rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remapped {
    /// After corrected errors.
    pub corrected: u32,
    /// After uncorrected errors.
    pub uncorrected: u32,
    /// Takes effect with the next reset.
    pub pending: bool,
    /// No spare row was left.
    pub failed: bool,
}

/// NVLink.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Up.
    pub active: u32,
    /// There.
    pub total: u32,
    /// Replays, recoveries and CRC errors of all of them.
    pub errors: u64,
}

/// All GPUs of a node.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuReport {
    /// Version of the NVIDIA driver.
    pub driver: Option<String>,
    /// Each.
    pub gpus: Vec<Gpu>,
}

impl GpuReport {
    /// Those that can be used.
    pub fn working(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|g| g.works())
    }

    /// Mean over those that tell, in percent.
    #[must_use]
    pub fn utilization(&self) -> Option<u8> {
        let (sum, n) = self
            .working()
            .filter_map(|g| g.utilization)
            .fold((0u64, 0u64), |(sum, n), u| {
                (sum.saturating_add(u64::from(u.min(100))), n.saturating_add(1))
            });
        percent(sum, n.saturating_mul(100))
    }

    /// Memory in use over all, in percent.
    #[must_use]
    pub fn memory_utilization(&self) -> Option<u8> {
        let (used, total) = self
            .working()
            .filter_map(|g| g.memory_used.zip(g.memory_total))
            .fold((0u64, 0u64), |(u, t), (used, total)| {
                (u.saturating_add(used), t.saturating_add(total))
            });
        percent(used, total)
    }

    /// The hottest, in degrees Celsius.
    #[must_use]
    pub fn temperature(&self) -> Option<i32> {
        self.working().filter_map(|g| g.temperature).max()
    }

    /// The type of most of them; the first of those that are equally many.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let count = |name: &str| {
            self.gpus
                .iter()
                .filter(|g| g.name.as_deref() == Some(name))
                .count()
        };
        let names = self.gpus.iter().filter_map(|g| g.name.as_deref());
        names.fold(None, |best: Option<&str>, name| match best {
            Some(b) if count(b) >= count(name) => best,
            _ => Some(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, utilization: Option<u8>, used: u64, temperature: i32) -> Gpu {
        Gpu {
            name: Some(name.into()),
            utilization,
            memory_total: Some(100),
            memory_used: Some(used),
            temperature: Some(temperature),
            ..Gpu::default()
        }
    }

    #[test]
    fn the_node_is_the_mean_of_its_gpus_and_as_hot_as_the_hottest() {
        let mut r = GpuReport {
            driver: None,
            gpus: vec![
                gpu("A", Some(100), 50, 40),
                gpu("B", None, 0, 71),
                gpu("B", Some(51), 40, 60),
            ],
        };
        assert_eq!((r.utilization(), r.memory_utilization()), (Some(76), Some(30)));
        assert_eq!((r.temperature(), r.name()), (Some(71), Some("B")));
        r.gpus[1].lost = true;
        assert_eq!((r.memory_utilization(), r.temperature()), (Some(45), Some(60)));
        let none = GpuReport::default();
        assert_eq!(
            (none.utilization(), none.memory_utilization(), none.name()),
            (None, None, None)
        );
    }
}
