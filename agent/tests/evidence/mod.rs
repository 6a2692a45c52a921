//! What the agent's collectors bring when something is wrong: for each finding of the catalogue that comes from outside
//! of the agent, the readings that provoke it, and a word of what it then says.

use std::time::Instant;

use hpc_schema::heartbeat::{Services, SlurmState};
use virtengine_node_agent::probe::checks::{CheckResult, Checks, Verdict};
use virtengine_node_agent::probe::errors::{Errors, LastError, LinkSeen, XidSeen};
use virtengine_node_agent::probe::gpu::{Gpu, GpuReport, Links, Remapped};
use virtengine_node_agent::probe::hardware::infiniband::Port;
use virtengine_node_agent::probe::hardware::memory_errors::Controller;
use virtengine_node_agent::probe::hardware::sensors::{Kind, Sensor};
use virtengine_node_agent::probe::memory::Memory;
use virtengine_node_agent::probe::pci::Gpus;
use virtengine_node_agent::probe::pressure::Pressure;
use virtengine_node_agent::probe::services::ServicesFound;
use virtengine_node_agent::probe::slurm::{Answer, SlurmNode};
use virtengine_node_agent::probe::storage::Storage;
use virtengine_node_agent::sample::{Category, Reading};

/// Found by the agent of itself: no reading brings these, and tests of their own provoke them.
pub(crate) const OWN: [&str; 7] = [
    "clock_skew",
    "collector_stuck",
    "hardware_changed",
    "out_of_service",
    "task_journal_damaged",
    "task_leftovers",
    "task_probe_failed",
];

const PCI: &str = "0000:1b:00.0";

/// The node as Slurm has it.
pub(crate) fn slurm(state: SlurmState, reason: &str) -> Reading {
    Reading::Slurm(Answer::Said(SlurmNode {
        state,
        state_text: "X".into(),
        reason: (!reason.is_empty()).then(|| reason.into()),
        cpus: 8,
        cpus_allocated: 0,
        cpus_usable: 8,
        memory_mib: 1000,
        memory_allocated_mib: 0,
        gpus: None,
        gpus_allocated: None,
        version: None,
    }))
}

fn gpu(gpu: Gpu) -> Reading {
    let gpu = Gpu {
        pci: Some(PCI.into()),
        ..gpu
    };
    Reading::Gpus(Some(GpuReport {
        driver: None,
        gpus: vec![gpu, Gpu::default()],
    }))
}

fn pressure(resource: &'static str) -> Reading {
    Reading::Pressure(vec![Pressure {
        resource,
        some: 9000,
        full: Some(6000),
    }])
}

fn errors(e: Errors) -> Reading {
    Reading::Errors(Some(e))
}

fn counted(class: &str, n: u32, unix: u64) -> Reading {
    let link = LinkSeen {
        messages: n,
        last: unix,
    };
    errors(Errors {
        classes: [(class.to_owned(), n)].into(),
        links: (class == "link")
            .then(|| ("eth0".to_owned(), link))
            .into_iter()
            .collect(),
        ..Errors::default()
    })
}

fn last(class: &str, text: &str, unix: u64) -> Reading {
    errors(Errors {
        last: Some(LastError {
            at: unix,
            class: class.into(),
            text: text.into(),
        }),
        ..Errors::default()
    })
}

/// A file server.
fn silent(name: &str, unix: u64) -> Reading {
    let said = LastError {
        at: unix,
        class: "file_server".into(),
        text: format!("nfs: server {name} not responding, still trying"),
    };
    errors(Errors {
        servers: [(name.to_owned(), said)].into(),
        ..Errors::default()
    })
}

fn xid(code: u32, unix: u64) -> Reading {
    errors(Errors {
        xids: vec![XidSeen {
            at: unix,
            device: "0000:1b:00".into(),
            code,
            count: 1,
        }],
        ..Errors::default()
    })
}

fn memory_errors(corrected: u64, uncorrected: u64) -> Reading {
    Reading::MemoryErrors(vec![Controller {
        name: "mc0".into(),
        corrected,
        uncorrected,
    }])
}

fn checked(verdict: Verdict, now: Instant) -> Reading {
    Reading::Checks(Checks {
        ran: Some(now),
        results: vec![CheckResult {
            name: "scratch".into(),
            verdict,
            line: "/scratch is not mounted".into(),
        }],
        ..Checks::default()
    })
}

/// The readings of this category that provoke `code`, and what the finding then says of it.
pub(crate) fn of(code: &str, category: Category, now: Instant, unix: u64) -> Option<Reading> {
    let (where_it_is, reading) = provoke(code, now, unix);
    if code == "service_down" && category == Category::JobCounts {
        return Some(Reading::Services(ServicesFound {
            services: Services {
                slurmd_running: Some(false),
                munge_running: Some(true),
                ..Services::default()
            },
            munge_version: None,
        }));
    }
    (where_it_is == category).then_some(reading)
}

/// A word of its message.
pub(crate) fn word(code: &str) -> &'static str {
    match code {
        "cpu_hot" => "97 °C",
        "disk_errors" => "dev sda",
        "file_server_errors" => "nfs: server filer",
        "filesystem_errors" => "device sda1",
        "kernel_hung" => "blocked for more than",
        "gpus_unknown" => "8 GPUs on the bus",
        "io_stalled" => "waited for io",
        "memory_stalled" => "waited for memory",
        "link_flapping" => "eth0: 5 messages of its driver within 24 h",
        "link_lost" => "mlx5_0",
        "machine_checks" | "memory_killed" | "pcie_errors" => "5 within",
        "service_errors" => "12 within",
        "memory_corrected" | "memory_uncorrected" => "mc0",
        "memory_exhausted" => "memory are available",
        "storage_full" => "storage are available",
        "sensor_critical" => "nvme Composite",
        "service_down" => "slurmd does not run",
        "site_check_degraded" | "site_check_failed" => "/scratch is not mounted",
        "slurm_down" => "not responding",
        "slurm_drain" => "bad fan",
        "slurm_silent" => "does not answer",
        _ => "0000:1b:00",
    }
}

fn provoke(code: &str, now: Instant, unix: u64) -> (Category, Reading) {
    use Category::{Capacity, Gpu as OfGpu, HealthStatus, Temperature};
    let none = Gpu::default();
    match code {
        "cpu_hot" => (Temperature, Reading::Temperature(Some(97))),
        "disk_errors" => (HealthStatus, last("io", "I/O error, dev sda, sector 0", unix)),
        "file_server_errors" => (HealthStatus, silent("filer", unix)),
        "filesystem_errors" => (
            HealthStatus,
            last("filesystem", "EXT4-fs error (device sda1): x", unix),
        ),
        "kernel_hung" => (
            HealthStatus,
            last("hang", "task cp blocked for more than 120 seconds", unix),
        ),
        "gpu_ecc_uncorrected" => (
            OfGpu,
            gpu(Gpu {
                ecc_uncorrected: Some(2),
                ..none
            }),
        ),
        "gpu_hot" => (
            OfGpu,
            gpu(Gpu {
                temperature: Some(91),
                ..none
            }),
        ),
        "gpu_lost" => (OfGpu, gpu(Gpu { lost: true, ..none })),
        "gpu_memory_worn" | "gpu_reset_due" => {
            let remapped = Remapped {
                failed: code == "gpu_memory_worn",
                pending: code == "gpu_reset_due",
                ..Remapped::default()
            };
            (
                OfGpu,
                gpu(Gpu {
                    remapped: Some(remapped),
                    ..none
                }),
            )
        }
        "gpu_throttled" => (
            OfGpu,
            gpu(Gpu {
                throttled_by: vec!["power brake".into()],
                ..none
            }),
        ),
        "nvlink_down" => (
            OfGpu,
            gpu(Gpu {
                links: Some(Links {
                    active: 11,
                    total: 12,
                    errors: 0,
                }),
                ..none
            }),
        ),
        "gpu_xid_reboot" => (HealthStatus, xid(79, unix)),
        "gpu_xid_replace" => (HealthStatus, xid(64, unix)),
        "gpu_xid_reset" => (HealthStatus, xid(48, unix)),
        "gpu_xid_restart" => (HealthStatus, xid(94, unix)),
        "gpus_unknown" => (
            Capacity,
            Reading::PciGpus(Some(Gpus {
                nvidia: 8,
                ..Gpus::default()
            })),
        ),
        "io_stalled" => (HealthStatus, pressure("io")),
        "memory_stalled" => (HealthStatus, pressure("memory")),
        "link_flapping" => (HealthStatus, counted("link", 5, unix)),
        "machine_checks" => (HealthStatus, counted("mce", 5, unix)),
        "memory_killed" => (HealthStatus, counted("oom", 5, unix)),
        "pcie_errors" => (HealthStatus, counted("pcie", 5, unix)),
        "service_errors" => (HealthStatus, counted("service", 12, unix)),
        "link_lost" => (
            Temperature,
            Reading::Ports(vec![Port {
                device: "mlx5_0".into(),
                port: "1".into(),
                state: "down".into(),
                physical: "polling".into(),
                layer: "infiniband".into(),
                rate_mbps: None,
                received: None,
                sent: None,
                errors: [].into(),
                percent: None,
                lost: true,
                flaps: 0,
                last_flap: None,
            }]),
        ),
        "memory_corrected" => (Temperature, memory_errors(3, 0)),
        "memory_uncorrected" => (Temperature, memory_errors(0, 3)),
        "sensor_critical" => (
            Temperature,
            Reading::Sensors(vec![Sensor {
                chip: "nvme".into(),
                label: "Composite".into(),
                kind: Kind::Temperature,
                value: 90_000,
                critical: Some(84_850),
            }]),
        ),
        "memory_exhausted" => (
            Capacity,
            Reading::Memory(Some(Memory {
                total: 64 << 30,
                available: 1 << 28,
            })),
        ),
        "storage_full" => (
            Capacity,
            Reading::Storage(Some(Storage {
                total: 1 << 40,
                available: 1 << 30,
                used: (1 << 40) - (1 << 30),
            })),
        ),
        "service_down" => (Capacity, slurm(SlurmState::Idle, "")),
        "site_check_degraded" => (HealthStatus, checked(Verdict::Degraded, now)),
        "site_check_failed" => (HealthStatus, checked(Verdict::Failed, now)),
        "slurm_down" => (Capacity, slurm(SlurmState::Down, "not responding")),
        "slurm_drain" => (Capacity, slurm(SlurmState::Drain, "bad fan")),
        "slurm_silent" => (Capacity, Reading::Slurm(Answer::Silent)),
        other => panic!("{other} has no evidence here"),
    }
}
