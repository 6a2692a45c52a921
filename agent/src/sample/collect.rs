//! The collectors: each reads what may hang together, and nothing else.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Category, Figures};
use crate::probe::cpu::CpuProbe;
use crate::probe::disk::{DiskProbe, DiskUse};
use crate::probe::host::{HostProbe, Load};
use crate::probe::memory::{Memory, MemoryProbe};
use crate::probe::network::{NetworkProbe, NetworkUse};
use crate::probe::pressure::{Pressure, PressureProbe};
use crate::probe::storage::{self, Storage};
use crate::probe::temperature::TemperatureProbe;
use crate::probe::{Roots, pci};

/// Reads some figures. Runs on a worker thread; may hang, then it is left alone until it comes back.
pub trait Collector: Send {
    /// For messages and `inventory`.
    fn name(&self) -> &'static str;
    /// By whose interval it runs.
    fn category(&self) -> Category;
    /// Longer, and it counts as stuck.
    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }
    /// Reads.
    fn collect(&mut self, now: Instant) -> Vec<Reading>;
}

/// What a collector read; none: the source had nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// [`Figures::cores`].
    Cores(Option<u32>),
    /// [`Figures::memory`].
    Memory(Option<Memory>),
    /// [`Figures::storage`].
    Storage(Option<Storage>),
    /// [`Figures::pci_gpus`].
    PciGpus(Option<u16>),
    /// [`Figures::load`].
    Load(Option<Load>),
    /// [`Figures::uptime`].
    Uptime(Option<u64>),
    /// [`Figures::pressure`].
    Pressure(Vec<Pressure>),
    /// [`Figures::cpu`].
    Cpu(Option<u8>),
    /// [`Figures::disk`].
    Disk(Option<DiskUse>),
    /// [`Figures::network`].
    Network(Option<NetworkUse>),
    /// [`Figures::temperature`].
    Temperature(Option<i32>),
}

impl Reading {
    /// Puts the reading where it belongs.
    pub fn apply(self, figures: &mut Figures, taken: Instant) {
        match self {
            Self::Cores(v) => figures.cores.set(v, taken),
            Self::Memory(v) => figures.memory.set(v, taken),
            Self::Storage(v) => figures.storage.set(v, taken),
            Self::PciGpus(v) => figures.pci_gpus.set(v, taken),
            Self::Load(v) => figures.load.set(v, taken),
            Self::Uptime(v) => figures.uptime.set(v, taken),
            Self::Pressure(v) => figures.pressure.set((!v.is_empty()).then_some(v), taken),
            Self::Cpu(v) => figures.cpu.set(v, taken),
            Self::Disk(v) => figures.disk.set(v, taken),
            Self::Network(v) => figures.network.set(v, taken),
            Self::Temperature(v) => figures.temperature.set(v, taken),
        }
    }
}

/// The collectors of every node.
#[must_use]
pub fn standard(roots: &Roots, storage_path: PathBuf) -> Vec<Box<dyn Collector>> {
    vec![
        Box::new(Machine {
            cpu: CpuProbe::new(roots),
            memory: MemoryProbe::new(roots),
        }),
        Box::new(StorageSpace(storage_path)),
        Box::new(Devices {
            roots: roots.clone(),
            gpus: None,
        }),
        Box::new(Host {
            host: HostProbe::new(roots),
            pressure: PressureProbe::new(roots),
        }),
        Box::new(Utilization {
            cpu: CpuProbe::new(roots),
            memory: MemoryProbe::new(roots),
            disk: DiskProbe::new(roots),
            network: NetworkProbe::new(roots),
        }),
        Box::new(Temperature(TemperatureProbe::new(roots))),
    ]
}

struct Machine {
    cpu: CpuProbe,
    memory: MemoryProbe,
}

impl Collector for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        vec![
            Reading::Cores(self.cpu.cores()),
            Reading::Memory(self.memory.read()),
        ]
    }
}

/// Alone: the path may lie on a dead file server.
struct StorageSpace(PathBuf);

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

/// The PCI bus is walked once an hour: a GPU that fell off the bus shows in its driver first.
struct Devices {
    roots: Roots,
    gpus: Option<(Instant, Option<u16>)>,
}

impl Collector for Devices {
    fn name(&self) -> &'static str {
        "devices"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        let gpus = match self.gpus {
            Some((at, n)) if now.saturating_duration_since(at) < Duration::from_secs(3600) => n,
            _ => {
                let n = pci::gpus(&self.roots);
                self.gpus = Some((now, n));
                n
            }
        };
        vec![Reading::PciGpus(gpus)]
    }
}

struct Host {
    host: HostProbe,
    pressure: PressureProbe,
}

impl Collector for Host {
    fn name(&self) -> &'static str {
        "host"
    }
    fn category(&self) -> Category {
        Category::HealthStatus
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        vec![
            Reading::Load(self.host.load()),
            Reading::Uptime(self.host.uptime()),
            Reading::Pressure(self.pressure.read()),
        ]
    }
}

struct Utilization {
    cpu: CpuProbe,
    memory: MemoryProbe,
    disk: DiskProbe,
    network: NetworkProbe,
}

impl Collector for Utilization {
    fn name(&self) -> &'static str {
        "utilization"
    }
    fn category(&self) -> Category {
        Category::Utilization
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![
            Reading::Cpu(self.cpu.utilization()),
            Reading::Memory(self.memory.read()),
            Reading::Disk(self.disk.busiest(now)),
            Reading::Network(self.network.busiest(now)),
        ]
    }
}

/// Alone: sensors answer over slow buses.
struct Temperature(TemperatureProbe);

impl Collector for Temperature {
    fn name(&self) -> &'static str {
        "temperature"
    }
    fn category(&self) -> Category {
        Category::Temperature
    }
    fn collect(&mut self, _now: Instant) -> Vec<Reading> {
        vec![Reading::Temperature(self.0.cpu())]
    }
}
