//! What is known of this machine, each figure with its age.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Category, max_staleness};
use crate::probe::checks::Checks;
use crate::probe::disk::DiskUse;
use crate::probe::errors::Errors;
use crate::probe::gpu::GpuReport;
use crate::probe::hardware::energy::Domain;
use crate::probe::hardware::infiniband::Port;
use crate::probe::hardware::memory_errors::Controller;
use crate::probe::hardware::sensors::Sensor;
use crate::probe::host::Load;
use crate::probe::latency::Measured;
use crate::probe::memory::Memory;
use crate::probe::network::NetworkUse;
use crate::probe::pci;
use crate::probe::pressure::Pressure;
use crate::probe::services::ServicesFound;
use crate::probe::slurm::{Answer, Drained, SlurmJobs, SlurmNode};
use crate::probe::storage::Storage;

/// One figure: its last value, when it was taken, where it comes from. A copy shares the value: all figures are copied in
/// each round, for the local interface.
#[derive(Debug)]
pub struct Figure<T> {
    kind: &'static Kind,
    taken: Option<Instant>,
    value: Option<Arc<T>>,
}

/// Category and source of a figure.
type Kind = (Category, &'static str);

impl<T> Clone for Figure<T> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            taken: self.taken,
            value: self.value.clone(),
        }
    }
}

impl<T> Figure<T> {
    const fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            taken: None,
            value: None,
        }
    }

    /// Puts down what was measured; none: the source had nothing. What comes back after something newer is left out: of two
    /// collectors that read the same, one may have hung.
    pub fn set(&mut self, value: Option<T>, taken: Instant) {
        if self.taken.is_some_and(|newest| taken < newest) {
            return;
        }
        self.value = value.map(Arc::new);
        self.taken = Some(taken);
    }

    /// The value, unless it is older than its category allows.
    #[must_use]
    pub fn fresh(&self, now: Instant) -> Option<&T> {
        let age = self.age(now)?;
        self.last().filter(|_| age <= max_staleness(self.category()))
    }

    /// The value where it is shown as one of `category`: it must be as fresh as those, too.
    #[must_use]
    pub fn fresh_as(&self, category: Category, now: Instant) -> Option<&T> {
        let age = self.age(now)?;
        self.fresh(now).filter(|_| age <= max_staleness(category))
    }

    /// The last value, however old.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.value.as_deref()
    }

    /// Time since it was measured; none if it never was.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.taken.map(|t| now.saturating_duration_since(t))
    }

    /// When it was measured; none if it never was.
    #[must_use]
    pub fn taken(&self) -> Option<Instant> {
        self.taken
    }

    /// Its category.
    #[must_use]
    pub fn category(&self) -> Category {
        self.kind.0
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &'static str {
        self.kind.1
    }
}

/// All figures of this machine.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Logical processors online.
    pub cores: Figure<u32>,
    /// Memory in bytes.
    pub memory: Figure<Memory>,
    /// The configured file system in bytes.
    pub storage: Figure<Storage>,
    /// NVIDIA and AMD GPUs on the PCI bus.
    pub pci_gpus: Figure<pci::Gpus>,
    /// GPUs as their drivers see them.
    pub gpus: Figure<GpuReport>,
    /// A driver has shown GPUs since the start.
    pub had_gpus: bool,
    /// Why NVML told nothing when it was asked last, with what helps.
    pub nvml_silent: Option<String>,
    /// The node as Slurm sees it.
    pub slurm: Figure<Answer<SlurmNode>>,
    /// Slurm's drain, until Slurm says otherwise: its silence does not end it.
    pub drained: Option<Drained>,
    /// Load averages.
    pub load: Figure<Load>,
    /// Seconds since the host started.
    pub uptime: Figure<u64>,
    /// Pressure stall information.
    pub pressure: Figure<Vec<Pressure>>,
    /// Errors and warnings of 24 hours.
    pub errors: Figure<Errors>,
    /// The site's own checks.
    pub checks: Figure<Checks>,
    /// CPU busy in percent.
    pub cpu: Figure<u8>,
    /// The busiest disk.
    pub disk: Figure<DiskUse>,
    /// The busiest link of the network devices.
    pub network: Figure<NetworkUse>,
    /// The busiest InfiniBand or RoCE port.
    pub fabric: Figure<NetworkUse>,
    /// CPU temperature in degrees Celsius.
    pub temperature: Figure<i32>,
    /// Every sensor of hwmon.
    pub sensors: Figure<Vec<Sensor>>,
    /// Mean power since the last look.
    pub power: Figure<Vec<Domain>>,
    /// Memory controllers.
    pub memory_errors: Figure<Vec<Controller>>,
    /// InfiniBand ports.
    pub ports: Figure<Vec<Port>>,
    /// Round trips to other nodes.
    pub peers: Figure<Vec<Measured>>,
    /// Jobs on this node.
    pub jobs: Figure<Answer<SlurmJobs>>,
    /// Daemons and container runtime.
    pub services: Figure<ServicesFound>,
}

impl Figures {
    /// How busy the busiest link is in percent, Ethernet's or InfiniBand's: what goes by RDMA no network device counts.
    #[must_use]
    pub fn busiest_link(&self, now: Instant) -> Option<u8> {
        let hangs = |f: &Figure<NetworkUse>| f.last().is_some() && f.fresh(now).is_none();
        // The busiest is not known while one of them is not.
        if hangs(&self.network) || hangs(&self.fabric) {
            return None;
        }
        let percent = |f: &Figure<NetworkUse>| f.fresh(now).map(|n| n.percent);
        percent(&self.network).max(percent(&self.fabric))
    }

    /// Memory in use in percent. As use it is of its moment: a figure of capacity may be older.
    #[must_use]
    pub fn memory_use(&self, now: Instant) -> Option<u8> {
        let memory = self.memory.fresh_as(Category::Utilization, now);
        memory.and_then(Memory::utilization)
    }

    /// When the oldest figure was measured of those that findings are made of; none while one never was, or the site's
    /// checks were not run. What no collector measures here does not count.
    #[must_use]
    pub fn probed(&self) -> Option<Instant> {
        let checks = self.checks.last().and_then(|c| c.ran);
        let all = [
            self.memory.taken,
            self.storage.taken,
            self.pci_gpus.taken,
            self.gpus.taken,
            self.slurm.taken,
            self.pressure.taken,
            self.errors.taken,
            self.temperature.taken,
            self.sensors.taken,
            self.memory_errors.taken,
            self.ports.taken,
            self.services.taken,
            checks,
        ];
        all.into_iter().min().flatten()
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            cores: Figure::new(&(Category::Capacity, "/sys/devices/system/cpu/online")),
            memory: Figure::new(&(Category::Capacity, "/proc/meminfo")),
            storage: Figure::new(&(Category::Capacity, "statvfs")),
            pci_gpus: Figure::new(&(Category::Capacity, "/sys/bus/pci/devices")),
            gpus: Figure::new(&(Category::Gpu, "NVML, /sys/class/drm")),
            had_gpus: false,
            nvml_silent: None,
            slurm: Figure::new(&(Category::Capacity, "scontrol")),
            drained: None,
            load: Figure::new(&(Category::HealthStatus, "/proc/loadavg")),
            uptime: Figure::new(&(Category::HealthStatus, "/proc/uptime")),
            pressure: Figure::new(&(Category::HealthStatus, "/proc/pressure")),
            errors: Figure::new(&(Category::HealthStatus, "/dev/kmsg, journal")),
            checks: Figure::new(&(Category::HealthStatus, "health.checks_dir")),
            cpu: Figure::new(&(Category::Utilization, "/proc/stat")),
            disk: Figure::new(&(Category::Utilization, "/proc/diskstats")),
            network: Figure::new(&(Category::Utilization, "/proc/net/dev")),
            fabric: Figure::new(&(Category::Utilization, "/sys/class/infiniband")),
            temperature: Figure::new(&(Category::Temperature, "/sys/class/hwmon, /sys/class/thermal")),
            sensors: Figure::new(&(Category::Temperature, "/sys/class/hwmon")),
            power: Figure::new(&(Category::Temperature, "/sys/class/powercap")),
            memory_errors: Figure::new(&(Category::Temperature, "/sys/devices/system/edac")),
            ports: Figure::new(&(Category::Temperature, "/sys/class/infiniband")),
            peers: Figure::new(&(Category::Latency, "UDP probes")),
            jobs: Figure::new(&(Category::JobCounts, "squeue")),
            services: Figure::new(&(Category::JobCounts, "/proc, --version")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_link_may_be_one_of_infiniband_and_is_as_fresh_as_use_must_be() {
        let mut f = Figures::default();
        let now = Instant::now();
        let busy = |percent: Option<u8>| {
            percent.map(|percent| NetworkUse {
                device: "x".into(),
                percent,
            })
        };
        let mut with = |fabric, network| {
            f.fabric.set(busy(fabric), now);
            f.network.set(busy(network), now);
            f.busiest_link(now)
        };
        assert_eq!(with(Some(93), Some(1)), Some(93));
        assert_eq!(with(Some(2), Some(40)), Some(40));
        assert_eq!(with(Some(7), None), Some(7));
        assert_eq!(with(None, None), None);
        f.fabric.set(busy(Some(93)), now);
        let later = now + Duration::from_secs(31);
        assert_eq!(f.busiest_link(later), None);
        f.network.set(busy(Some(5)), later);
        assert_eq!(f.busiest_link(later), None, "the other one may be the busiest");
    }

    #[test]
    fn a_figure_that_is_shown_as_use_is_absent_once_use_would_be() {
        let mut f = Figures::default();
        let now = Instant::now();
        f.cores.set(Some(8), now);
        let at = |seconds| {
            f.cores
                .fresh_as(Category::Utilization, now + Duration::from_secs(seconds))
        };
        assert_eq!((at(30), at(31)), (Some(&8), None));
        assert_eq!(f.cores.fresh(now + Duration::from_secs(31)), Some(&8));
        let own = f
            .cores
            .fresh_as(Category::Temperature, now + Duration::from_secs(61));
        assert_eq!(own, None, "its own limit holds as well");
    }

    #[test]
    fn a_copy_shares_what_it_holds_and_keeps_it_when_the_first_is_measured_again() {
        let mut f = Figures::default();
        let now = Instant::now();
        let busy = |device: &str| {
            Some(DiskUse {
                device: device.into(),
                percent: 7,
            })
        };
        f.disk.set(busy("vda"), now);
        let copy = f.clone();
        let (first, second) = (f.disk.last().unwrap(), copy.disk.last().unwrap());
        assert!(std::ptr::eq(first, second), "no other copy of its words");
        f.disk.set(busy("vdb"), now);
        assert_eq!(copy.disk.fresh(now).unwrap().device, "vda");
        assert_eq!(f.disk.fresh(now).unwrap().device, "vdb");
    }

    #[test]
    fn what_comes_back_late_replaces_nothing_newer() {
        let mut f = Figures::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        f.cores.set(Some(8), at(61));
        f.cores.set(Some(4), at(0));
        f.cores.set(None, at(30));
        assert_eq!((f.cores.fresh(at(61)), f.cores.taken()), (Some(&8), Some(at(61))));
        // Of the same moment the last one counts.
        f.cores.set(Some(16), at(61));
        assert_eq!(f.cores.last(), Some(&16));
    }

    #[test]
    fn a_figure_is_absent_once_it_is_older_than_its_category_allows() {
        let mut f = Figures::default();
        let now = Instant::now();
        assert_eq!(f.cpu.fresh(now), None);
        f.cpu.set(Some(50), now);
        assert_eq!(f.cpu.fresh(now + Duration::from_secs(30)), Some(&50));
        assert_eq!(f.cpu.fresh(now + Duration::from_millis(30_001)), None);
        f.cpu.set(None, now);
        assert_eq!(f.cpu.fresh(now), None);
    }
}
