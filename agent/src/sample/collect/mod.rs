//! The collectors: each reads what may hang together, and nothing else.

mod devices;
mod host;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Category, Figures};
use crate::probe::checks::{Checks, ChecksConfig};
use crate::probe::disk::DiskUse;
use crate::probe::errors::Errors;
use crate::probe::gpu::{GpuConfig, GpuReport};
use crate::probe::hardware::energy::Domain;
use crate::probe::hardware::infiniband::Port;
use crate::probe::hardware::memory_errors::Controller;
use crate::probe::hardware::sensors::Sensor;
use crate::probe::host::Load;
use crate::probe::kept::Kept;
use crate::probe::latency::Measured;
use crate::probe::memory::Memory;
use crate::probe::network::{LinkDrivers, LinkSpeeds, NetworkUse};
use crate::probe::pressure::Pressure;
use crate::probe::recent::Recent;
use crate::probe::services::ServicesFound;
use crate::probe::slurm::{Answer, Drained, LastNode, SlurmConfig, SlurmJobs, SlurmNode, ledger_path};
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
    /// Where collectors by another configuration take over, one that counts from its last look on goes on: with all others
    /// of this name, as they share what they read, or not at all.
    fn goes_on(&self) -> Option<&'static str> {
        None
    }
    /// What links' drivers have said, where it asks them or measures by it.
    fn link_drivers(&mut self) -> Option<&mut LinkDrivers> {
        None
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
    /// [`Figures::sensors`].
    Sensors(Vec<Sensor>),
    /// [`Figures::power`].
    Power(Vec<Domain>),
    /// [`Figures::memory_errors`].
    MemoryErrors(Vec<Controller>),
    /// [`Figures::ports`].
    Ports(Vec<Port>),
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
            Self::Sensors(v) => figures.sensors.set(Some(v), taken),
            Self::Power(v) => figures.power.set(Some(v), taken),
            Self::MemoryErrors(v) => figures.memory_errors.set(Some(v), taken),
            Self::Ports(v) => figures.ports.set(Some(v), taken),
            Self::Peers(v) => figures.peers.set(Some(v), taken),
            Self::Slurm(v) => {
                figures.drained = Drained::after(figures.drained.take(), &v);
                figures.slurm.set(Some(v), taken);
            }
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
    let speeds = LinkSpeeds::new(roots);
    let utilization = host::Utilization::new(roots, memory.clone(), &speeds);
    vec![
        Box::new(devices::Fabric::new(roots)),
        Box::new(host::Speeds(speeds)),
        Box::new(host::Machine::new(roots, memory)),
        Box::new(host::StorageSpace(storage_path.clone())),
        Box::new(host::Host::new(roots, uptime.clone())),
        Box::new(utilization),
        Box::new(host::Messages::new(
            roots,
            kept(memory_dir.join("errors.json")),
            uptime,
        )),
        Box::new(devices::Bus::new(gpu, roots, kept(state.gpus()))),
        Box::new(devices::Temperature::new(roots)),
        Box::new(devices::Sensors::new(roots)),
        Box::new(devices::Counters::new(roots)),
        Box::new(devices::Ports::new(roots, kept(state.ports()))),
        Box::new(devices::Gpus::new(gpu, roots)),
        Box::new(work::Programs::new(roots, slurm)),
        Box::new(work::Node::new(roots, slurm, node.clone())),
        Box::new(work::Jobs::new(roots, slurm, kept(ledger_path(memory_dir)), node)),
        Box::new(work::SiteChecks::new(checks)),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::probe::recorded;
    use crate::sample::Sampler;

    const BUDGET: Duration = Duration::from_secs(60);

    /// A file whose driver does not answer: whoever opens it waits for a writer.
    fn hang(path: &std::path::Path) {
        fs::remove_file(path).ok();
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    }

    fn sources(roots: &Roots) -> Sources {
        Sources {
            roots: roots.clone(),
            memory_dir: roots.proc.clone(),
            keeps: false,
            ..Sources::default()
        }
    }

    fn sampler(roots: &Roots) -> Sampler {
        Sampler::new(standard(&sources(roots)))
    }

    /// Of two links eth0's driver hangs, which is asked first.
    fn first_hangs(roots: &Roots) {
        let net = roots.sys.join("class/net");
        for link in ["eth0", "eth1"] {
            fs::create_dir_all(net.join(link).join("device")).unwrap();
        }
        hang(&net.join("eth0/speed"));
        fs::write(net.join("eth1/speed"), "1000\n").unwrap();
    }

    /// The busiest link at look `n`. Since the one before, more has gone over each than it can carry.
    async fn busiest(s: &mut Sampler, roots: &Roots, n: u64) -> Option<(String, u8)> {
        let (bytes, rest) = (n << 40, "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0");
        let text = format!("  eth0: {bytes} {rest}\n  eth1: {bytes} {rest}\n");
        fs::write(roots.proc.join("net/dev"), text).unwrap();
        s.sample(|c| c == Category::Utilization, BUDGET).await;
        let network = s.figures().network.fresh(Instant::now());
        network.map(|n| (n.device.clone(), n.percent))
    }

    /// Looks until a link is known: which look that was, and the link.
    async fn known(s: &mut Sampler, roots: &Roots) -> (u64, (String, u8)) {
        let end = Instant::now() + BUDGET;
        let mut n = 0;
        loop {
            if let Some(link) = busiest(s, roots, n).await {
                return (n, link);
            }
            assert!(Instant::now() < end, "no link is known at look {n}");
            n += 1;
        }
    }

    #[tokio::test]
    async fn a_network_driver_that_hangs_leaves_all_other_use_measured() {
        let (_dir, roots) = recorded("gpu-node");
        first_hangs(&roots);
        let mut s = sampler(&roots);
        let (n, link) = known(&mut s, &roots).await;
        let other = ("eth1".to_owned(), 100);
        assert_eq!(link, other);
        for look in n + 1..n + 4 {
            assert_eq!(busiest(&mut s, &roots, look).await, Some(other.clone()));
            let (now, f) = (Instant::now(), s.figures());
            assert!(f.memory.fresh(now).is_some() && f.disk.taken() == f.network.taken());
        }
    }

    #[tokio::test]
    async fn a_network_driver_that_hangs_over_a_reload_is_told_and_keeps_no_link_from_being_measured_on() {
        let (_dir, roots) = recorded("gpu-node");
        first_hangs(&roots);
        let mut s = sampler(&roots);
        let (n, link) = known(&mut s, &roots).await;
        let mut next = sampler(&roots);
        next.take_over(s, &sources(&roots), &sources(&roots));
        assert_eq!(busiest(&mut next, &roots, n + 1).await, Some(link));
        // The new reader finds out by itself.
        let end = Instant::now() + BUDGET;
        while next.stuck().is_empty() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stuck: Vec<_> = next.stuck().iter().map(|s| s.name).collect();
        assert_eq!(stuck, ["link speeds"]);
    }

    #[tokio::test]
    async fn power_is_measured_on_over_a_reload() {
        let (_dir, roots) = recorded("gpu-node");
        let power = async |s: &mut Sampler| {
            s.sample(|c| c == Category::Temperature, BUDGET).await;
            s.figures().power.fresh(Instant::now()).map(Vec::len)
        };
        let mut s = sampler(&roots);
        assert_eq!(power(&mut s).await, Some(0), "the first look");
        assert_eq!(power(&mut s).await, Some(3));
        let mut next = sampler(&roots);
        next.take_over(s, &sources(&roots), &sources(&roots));
        assert_eq!(power(&mut next).await, Some(3));
    }

    #[tokio::test]
    async fn a_network_driver_that_hung_over_a_reload_is_measured_once_it_is_mended() {
        let (_dir, roots) = recorded("gpu-node");
        let speed = roots.sys.join("class/net/eth1/speed");
        fs::create_dir_all(speed.with_file_name("device")).unwrap();
        hang(&speed);
        let mut s = sampler(&roots);
        let look = async |s: &mut Sampler, n: u64| {
            // More than a link can carry.
            let text = format!("  eth1: {} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n", n << 50);
            fs::write(roots.proc.join("net/dev"), text).unwrap();
            s.sample(|c| c == Category::Utilization, BUDGET).await;
            let network = s.figures().network.fresh(Instant::now());
            network.map(|n| (n.device.clone(), n.percent))
        };
        // The link is found, and its driver does not answer.
        assert_eq!((look(&mut s, 0).await, look(&mut s, 1).await), (None, None));
        fs::remove_file(&speed).unwrap();
        fs::write(&speed, "1000\n").unwrap();
        let mut next = sampler(&roots);
        next.take_over(s, &sources(&roots), &sources(&roots));
        look(&mut next, 2).await;
        assert_eq!(look(&mut next, 3).await, Some(("eth1".to_owned(), 100)));
    }

    #[tokio::test]
    async fn a_sensor_that_hangs_leaves_memory_errors_ports_and_power_measured() {
        let (_dir, roots) = recorded("gpu-node");
        hang(&roots.sys.join("class/hwmon/hwmon3/power1_average"));
        let mut s = sampler(&roots);
        s.sample(|c| c == Category::Temperature, BUDGET).await;
        let (now, f) = (Instant::now(), s.figures());
        assert_eq!(f.sensors.age(now), None);
        assert_eq!(f.memory_errors.fresh(now).map(Vec::len), Some(4));
        assert_eq!(f.ports.fresh(now).map(Vec::len), Some(9));
        assert!(f.power.fresh(now).is_some() && f.temperature.fresh(now).is_some());
    }
}
