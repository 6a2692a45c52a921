//! The collectors: each reads what may hang together, and nothing else.

mod devices;
mod host;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Category, Figures, Instruments};
use crate::probe::checks::{Checks, ChecksConfig};
use crate::probe::disk::DiskUse;
use crate::probe::errors::Errors;
use crate::probe::gpu::{GpuConfig, GpuReport};
use crate::probe::host::Load;
use crate::probe::kept::Kept;
use crate::probe::latency::Measured;
use crate::probe::memory::Memory;
use crate::probe::network::NetworkUse;
use crate::probe::pressure::Pressure;
use crate::probe::recent::Recent;
use crate::probe::services::ServicesFound;
use crate::probe::slurm::{Answer, LastNode, SlurmConfig, SlurmJobs, SlurmNode, ledger_path};
use crate::probe::storage::Storage;
use crate::probe::{Roots, pci};
use crate::state::StateDir;

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
    PciGpus(Option<pci::Gpus>),
    /// [`Figures::gpus`].
    Gpus(Option<GpuReport>),
    /// [`Figures::nvml_silent`].
    NvmlSilent(Option<String>),
    /// [`Figures::load`].
    Load(Option<Load>),
    /// [`Figures::uptime`].
    Uptime(Option<u64>),
    /// [`Figures::pressure`].
    Pressure(Vec<Pressure>),
    /// [`Figures::errors`].
    Errors(Option<Errors>),
    /// [`Figures::checks`].
    Checks(Checks),
    /// [`Figures::cpu`].
    Cpu(Option<u8>),
    /// [`Figures::disk`].
    Disk(Option<DiskUse>),
    /// [`Figures::network`].
    Network(Option<NetworkUse>),
    /// [`Figures::fabric`].
    Fabric(Option<NetworkUse>),
    /// [`Figures::temperature`].
    Temperature(Option<i32>),
    /// [`Figures::instruments`].
    Instruments(Instruments),
    /// [`Figures::peers`].
    Peers(Vec<Measured>),
    /// [`Figures::slurm`].
    Slurm(Answer<SlurmNode>),
    /// [`Figures::jobs`].
    Jobs(Answer<SlurmJobs>),
    /// [`Figures::services`].
    Services(ServicesFound),
    /// No figure: there is something for the loop elsewhere.
    Word,
}

impl Reading {
    /// Puts the reading where it belongs.
    pub fn apply(self, figures: &mut Figures, taken: Instant) {
        match self {
            Self::Cores(v) => figures.cores.set(v, taken),
            Self::Memory(v) => figures.memory.set(v, taken),
            Self::Storage(v) => figures.storage.set(v, taken),
            Self::PciGpus(v) => figures.pci_gpus.set(v, taken),
            Self::Gpus(v) => {
                figures.had_gpus |= v.as_ref().is_some_and(|r| !r.gpus.is_empty());
                figures.gpus.set(v, taken);
            }
            Self::NvmlSilent(v) => figures.nvml_silent = v,
            Self::Load(v) => figures.load.set(v, taken),
            Self::Uptime(v) => figures.uptime.set(v, taken),
            Self::Pressure(v) => figures.pressure.set((!v.is_empty()).then_some(v), taken),
            Self::Errors(v) => figures.errors.set(v, taken),
            Self::Checks(v) => figures.checks.set(Some(v), taken),
            Self::Cpu(v) => figures.cpu.set(v, taken),
            Self::Disk(v) => figures.disk.set(v, taken),
            Self::Network(v) => figures.network.set(v, taken),
            Self::Fabric(v) => figures.fabric.set(v, taken),
            Self::Temperature(v) => figures.temperature.set(v, taken),
            Self::Instruments(v) => figures.instruments.set(Some(v), taken),
            Self::Peers(v) => figures.peers.set(Some(v), taken),
            Self::Slurm(v) => figures.slurm.set(Some(v), taken),
            Self::Jobs(v) => figures.jobs.set(Some(v), taken),
            Self::Services(v) => figures.services.set(Some(v), taken),
            Self::Word => {}
        }
    }
}

/// Where and how to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Mount points of the kernel's trees.
    pub roots: Roots,
    /// Path whose file system is reported as storage.
    pub storage_path: PathBuf,
    /// Where counts that must survive a restart are kept.
    pub memory_dir: PathBuf,
    /// Whether they are; not by those who look beside the running agent.
    pub keeps: bool,
    /// Slurm.
    pub slurm: SlurmConfig,
    /// GPUs.
    pub gpu: GpuConfig,
    /// The site's own checks.
    pub checks: ChecksConfig,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            roots: Roots::default(),
            storage_path: "/".into(),
            memory_dir: crate::state::DEFAULT_STATE_DIR.into(),
            keeps: true,
            slurm: SlurmConfig::default(),
            gpu: GpuConfig::default(),
            checks: ChecksConfig::default(),
        }
    }
}

/// The collectors of every node. Those that start programs come last: they are slow, and run one after the other.
#[must_use]
pub fn standard(sources: &Sources) -> Vec<Box<dyn Collector>> {
    let Sources {
        roots,
        storage_path,
        memory_dir,
        keeps,
        slurm,
        gpu,
        checks,
    } = sources;
    let kept = |path: PathBuf| {
        if *keeps {
            Kept::from(path)
        } else {
            Kept::read_only(path)
        }
    };
    let state = StateDir::new(memory_dir);
    let node = LastNode::default();
    let (memory, uptime) = (Recent::default(), Recent::default());
    vec![
        Box::new(devices::Fabric::new(roots)),
        Box::new(host::Machine::new(roots, memory.clone())),
        Box::new(host::StorageSpace(storage_path.clone())),
        Box::new(host::Host::new(roots, uptime.clone())),
        Box::new(host::Utilization::new(roots, memory)),
        Box::new(host::Messages::new(
            roots,
            kept(memory_dir.join("errors.json")),
            uptime,
        )),
        Box::new(devices::Bus::new(gpu, roots, kept(state.gpus()))),
        Box::new(devices::Temperature::new(roots)),
        Box::new(devices::Sensors::new(roots, kept(state.ports()))),
        Box::new(devices::Gpus::new(gpu, roots)),
        Box::new(work::Programs::new(roots, slurm)),
        Box::new(work::Node::new(roots, slurm, node.clone())),
        Box::new(work::Jobs::new(roots, slurm, kept(ledger_path(memory_dir)), node)),
        Box::new(work::SiteChecks::new(checks)),
    ]
}
