//! `/v1/capacity`: what this host is and has, by the names of specifications 000, 001 and 002.

use std::path::Path;
use std::time::Instant;

use hpc_schema::heartbeat::Capacity;
use schemars::JsonSchema;
use serde::Serialize;

use super::board::View;
use super::source::Source;
use crate::accel::{self, Accel};
use crate::files::read_text;
use crate::heartbeat::capacity;
use crate::probe::gpu::Gpu;
use crate::probe::{host, line};
use crate::state::Status;

/// What this host is and has. What is unknown is absent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CapacityAnswer {
    /// The node's id; before the registration the configured one, else the host's name.
    pub(super) host_id: Option<String>,
    /// Its cluster, once registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster_id: Option<String>,
    /// The host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hostname: Option<String>,
    /// Version of the agent.
    pub(super) agent_version: &'static str,
    /// `linux`, `freebsd` or `dragonflybsd`.
    pub(super) os_family: &'static str,
    /// The operating system with its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) os: Option<String>,
    /// `x86_64` or `aarch64`.
    pub(super) architecture: &'static str,
    /// Release of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel: Option<String>,
    /// The accelerator in use; absent if the one that is wanted does not work here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selected_accel: Option<Accel>,
    /// Accelerators that work here, the best first.
    pub(super) supported_accels: Vec<Accel>,
    /// `healthy`, `degraded`, `unhealthy` or `draining`.
    pub(super) health: &'static str,
    /// Logical processors.
    pub(super) cpu_total: u32,
    /// Of them, what may be given to work: all but the reserve.
    pub(super) cpu_allocatable: u32,
    /// Of them, what is not given to any work.
    pub(super) cpu_free: u32,
    /// Memory in MiB.
    pub(super) ram_total_mb: u64,
    /// Of it, what may be given to work: all but the reserve.
    pub(super) ram_allocatable_mb: u64,
    /// Of it, what is neither given to work nor in use.
    pub(super) ram_free_mb: u64,
    /// GPUs as their drivers see them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gpus: Vec<GpuAnswer>,
    /// The figures of the heartbeat.
    pub(super) capacity: Capacity,
}

/// A GPU.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GpuAnswer {
    index: u32,
    vendor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// Address on the PCI bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pci: Option<String>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_total_mb: Option<u64>,
    /// Memory in use, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_used_mb: Option<u64>,
    /// Instances that it is cut into (MIG).
    #[serde(skip_serializing_if = "Option::is_none")]
    mig_instances: Option<u32>,
    /// Whether it answers its driver.
    working: bool,
}

impl CapacityAnswer {
    /// None while cores or memory are unknown.
    pub(super) fn new(source: &Source, view: &View, status: Option<&Status>, now: Instant) -> Option<Self> {
        let supported = accel::supported(source.tasks.as_deref(), &source.roots);
        Self::of(source, view, status, supported, now)
    }

    fn of(
        source: &Source,
        view: &View,
        status: Option<&Status>,
        supported: Vec<Accel>,
        now: Instant,
    ) -> Option<Self> {
        let View {
            figures,
            held,
            reserve,
            slurm_cpus,
            ..
        } = view;
        let capacity = capacity(figures, *held, *reserve, *slurm_cpus, now)?;
        let memory = figures.memory.fresh(now)?;
        let mb = |gb: u32| u64::from(gb).saturating_mul(1024);
        let total = memory.total >> 20;
        let allocatable = total.saturating_sub(mb(reserve.memory_gb));
        // Unknown allocations: nothing is known to be free.
        let free = capacity.memory_gb_allocated.map_or(0, |given| {
            (memory.available >> 20).min(allocatable.saturating_sub(mb(given)))
        });
        let hostname = host::hostname(&source.roots);
        let registered = status.and_then(|s| s.node_id.clone());
        let configured = || source.node_id.clone();
        Some(Self {
            host_id: registered.or_else(configured).or_else(|| hostname.clone()),
            cluster_id: status.and_then(|s| s.cluster_id.clone()),
            hostname,
            agent_version: env!("CARGO_PKG_VERSION"),
            os_family: host::os_family(),
            os: read_text(&source.roots.etc.join("os-release"), 16 << 10)
                .ok()
                .and_then(|t| pretty_name(&t)),
            architecture: std::env::consts::ARCH,
            kernel: line(&source.roots.proc.join(Path::new("sys/kernel/osrelease"))),
            selected_accel: accel::selected(source.wanted, &supported),
            supported_accels: supported,
            health: view.health.as_str(),
            cpu_total: capacity.cpu_cores_total,
            cpu_allocatable: capacity.cpu_cores_total.saturating_sub(reserve.cpu_cores),
            cpu_free: capacity.cpu_cores_available,
            ram_total_mb: total,
            ram_allocatable_mb: allocatable,
            ram_free_mb: free,
            gpus: figures
                .gpus
                .fresh(now)
                .into_iter()
                .flat_map(|r| &r.gpus)
                .map(gpu)
                .collect(),
            capacity,
        })
    }
}

fn gpu(g: &Gpu) -> GpuAnswer {
    let mb = |bytes: Option<u64>| bytes.map(|b| b >> 20);
    GpuAnswer {
        index: g.index,
        vendor: g.vendor.clone(),
        name: g.name.clone(),
        uuid: g.uuid.clone(),
        pci: g.pci.clone(),
        memory_total_mb: mb(g.memory_total),
        memory_used_mb: mb(g.memory_used),
        mig_instances: g.mig_instances,
        working: g.works(),
    }
}

/// `PRETTY_NAME` of `/etc/os-release`.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hpc_schema::heartbeat::HealthStatus;

    use super::*;
    use crate::api::Board;
    use crate::config::{Reserve, parse, resolve};
    use crate::heartbeat::Held;
    use crate::probe::memory::Memory;
    use crate::sample::Figures;

    #[test]
    fn free_memory_is_what_is_neither_given_away_nor_reserved_nor_in_use() {
        let file = parse(
            "provider_daemon: {endpoint: 'https://a:1'}\nnode: {id: node-7}",
            Path::new("f"),
        )
        .unwrap();
        let now = Instant::now();
        let mut source = Source::new(&resolve(file).unwrap(), Arc::<Board>::default(), now);
        let mut figures = Figures::default();
        figures.cores.set(Some(8), now);
        figures.slurm.set(Some(crate::probe::slurm::Answer::NotHere), now);
        let memory = |available| Memory {
            total: 64 << 30,
            available,
        };
        figures.memory.set(Some(memory(60 << 30)), now);
        let view = |figures: &Figures| View {
            figures: figures.clone(),
            held: Held {
                cores: 2,
                memory_gb: 8,
                gpus: 0,
            },
            reserve: Reserve {
                cpu_cores: 1,
                memory_gb: 4,
            },
            slurm_cpus: None,
            health: HealthStatus::Healthy,
            findings: Vec::new(),
        };
        let both = vec![Accel::Kvm, Accel::Tcg];
        let answer = CapacityAnswer::of(&source, &view(&figures), None, both.clone(), now).unwrap();
        assert_eq!(
            (answer.host_id.as_deref(), answer.cluster_id),
            (Some("node-7"), None)
        );
        assert_eq!(
            (answer.cpu_total, answer.cpu_allocatable, answer.cpu_free),
            (8, 7, 5)
        );
        assert_eq!(
            (answer.ram_total_mb, answer.ram_allocatable_mb, answer.ram_free_mb),
            (65_536, 61_440, 53_248)
        );
        assert_eq!(answer.selected_accel, Some(Accel::Kvm));
        figures.memory.set(Some(memory(10 << 30)), now);
        source.wanted = Some(Accel::Kvm);
        let answer = CapacityAnswer::of(&source, &view(&figures), None, vec![Accel::Tcg], now).unwrap();
        assert_eq!((answer.ram_free_mb, answer.selected_accel), (10_240, None));
        assert!(CapacityAnswer::of(&source, &view(&Figures::default()), None, both, now).is_none());
    }

    #[test]
    fn the_name_of_the_system_is_its_pretty_one() {
        assert_eq!(
            pretty_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n").as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"\"\n"), None);
    }
}
