use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Collector, Reading};
use crate::clock::unix_seconds;
use crate::probe::Roots;
use crate::probe::cpu::CpuProbe;
use crate::probe::disk::DiskProbe;
use crate::probe::errors::ErrorsProbe;
use crate::probe::host::HostProbe;
use crate::probe::kept::Kept;
use crate::probe::memory::{Memory, MemoryProbe};
use crate::probe::network::{LinkDrivers, LinkSpeeds, NetworkProbe};
use crate::probe::pressure::PressureProbe;
use crate::probe::recent::Recent;
use crate::probe::storage;
use crate::sample::Category;

/// Those who share what they read of memory.
const USE: &str = "use";

/// Cores and memory.
pub(super) struct Machine {
    cpu: CpuProbe,
    memory: MemoryProbe,
    recent: Recent<Memory>,
}

impl Machine {
    pub(super) fn new(roots: &Roots, recent: Recent<Memory>) -> Self {
        Self {
            cpu: CpuProbe::new(roots),
            memory: MemoryProbe::new(roots),
            recent,
        }
    }
}

impl Collector for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn goes_on(&self) -> Option<&'static str> {
        Some(USE)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![
            Reading::Cores(self.cpu.cores()),
            Reading::Memory(self.recent.or(now, || self.memory.read())),
        ]
    }
}

/// Alone: the path may lie on a dead file server.
pub(super) struct StorageSpace(pub(super) PathBuf);

impl Collector for StorageSpace {
    fn name(&self) -> &'static str {
        "storage"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        vec![Reading::Storage(storage::read(&self.0))]
    }
}

/// Load, uptime, pressure.
pub(super) struct Host {
    host: HostProbe,
    uptime: Recent<u64>,
    pressure: PressureProbe,
}

impl Host {
    pub(super) fn new(roots: &Roots, uptime: Recent<u64>) -> Self {
        Self {
            host: HostProbe::new(roots),
            uptime,
            pressure: PressureProbe::new(roots),
        }
    }
}

impl Collector for Host {
    fn name(&self) -> &'static str {
        "host"
    }
    fn category(&self) -> Category {
        Category::HealthStatus
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![
            Reading::Load(self.host.load()),
            Reading::Uptime(self.uptime.or(now, || self.host.uptime())),
            Reading::Pressure(self.pressure.read()),
        ]
    }
}

/// How busy CPU, memory, disks and links are.
pub(super) struct Utilization {
    cpu: CpuProbe,
    memory: MemoryProbe,
    recent: Recent<Memory>,
    disk: DiskProbe,
    network: NetworkProbe,
}

impl Utilization {
    pub(super) fn new(roots: &Roots, recent: Recent<Memory>, speeds: &LinkSpeeds) -> Self {
        Self {
            cpu: CpuProbe::new(roots),
            memory: MemoryProbe::new(roots),
            recent,
            disk: DiskProbe::new(roots),
            network: NetworkProbe::new(roots, speeds),
        }
    }
}

impl Collector for Utilization {
    fn name(&self) -> &'static str {
        "utilization"
    }
    fn category(&self) -> Category {
        Category::Utilization
    }
    fn goes_on(&self) -> Option<&'static str> {
        Some(USE)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![
            Reading::Cpu(self.cpu.utilization()),
            Reading::Memory(self.recent.or(now, || self.memory.read())),
            Reading::Disk(self.disk.busiest(now)),
            Reading::Network(self.network.busiest(now)),
        ]
    }
    fn link_drivers(&mut self) -> Option<&mut LinkDrivers> {
        Some(self.network.drivers())
    }
}

/// Link speeds, for [`Utilization`]. Alone: drivers of network cards answer.
pub(super) struct Speeds(pub(super) LinkSpeeds);

impl Collector for Speeds {
    fn name(&self) -> &'static str {
        "link speeds"
    }
    fn category(&self) -> Category {
        Category::Utilization
    }
    fn deadline(&self) -> Duration {
        Duration::from_secs(5)
    }
    fn goes_on(&self) -> Option<&'static str> {
        Some("link speeds")
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        self.0.read();
        Vec::new()
    }
    fn link_drivers(&mut self) -> Option<&mut LinkDrivers> {
        Some(self.0.drivers())
    }
}

/// The kernel's log and the journal.
pub(super) struct Messages(ErrorsProbe);

impl Messages {
    pub(super) fn new(roots: &Roots, kept: Kept, uptime: Recent<u64>) -> Self {
        Self(ErrorsProbe::new(roots, kept).sharing(uptime))
    }
}

impl Collector for Messages {
    fn name(&self) -> &'static str {
        "errors"
    }
    fn category(&self) -> Category {
        Category::HealthStatus
    }
    fn deadline(&self) -> Duration {
        // The journal is read by its own program.
        Duration::from_secs(10)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Errors(self.0.read(now, unix_seconds()))]
    }
}
