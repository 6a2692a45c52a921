//! Each line of the catalogue, provoked.

use std::collections::BTreeSet;
use std::time::Instant;

use hpc_schema::heartbeat::{HealthStatus, Services, SlurmState};

use super::*;
use crate::probe::checks::{CheckResult, Checks, Verdict};
use crate::probe::errors::{Errors, LastError, LinkSeen, XidSeen};
use crate::probe::gpu::{Gpu, GpuReport, Links, Remapped};
use crate::probe::hardware::infiniband::Port;
use crate::probe::hardware::memory_errors::Controller;
use crate::probe::hardware::sensors::{Kind as SensorKind, Sensor};
use crate::probe::memory::Memory;
use crate::probe::pci::Gpus;
use crate::probe::pressure::Pressure;
use crate::probe::services::ServicesFound;
use crate::probe::slurm::{Answer, By, Drained, SlurmNode};
use crate::probe::storage::Storage;
use crate::sample::Reading;

const NOW: u64 = 1_000_000;

fn node(state: SlurmState, reason: &str) -> Answer<SlurmNode> {
    Answer::Said(SlurmNode {
        state,
        state_text: "X".into(),
        reason: Some(reason.into()),
        ..SlurmNode::idle()
    })
}

fn gpu(gpu: Gpu) -> Option<GpuReport> {
    let gpus = vec![gpu, Gpu::default()];
    Some(GpuReport { driver: None, gpus })
}

fn pressure(resource: &'static str, full: u64) -> Option<Vec<Pressure>> {
    let some = 10_000;
    Some(vec![Pressure {
        resource,
        some,
        full: Some(full),
    }])
}

fn xid(code: u32) -> Option<Errors> {
    let seen = XidSeen {
        at: NOW,
        device: "0000:1b:00".into(),
        code,
        count: 2,
    };
    Some(Errors {
        xids: vec![seen.clone(), seen],
        ..Errors::default()
    })
}

fn class(name: &str, n: u32) -> Option<Errors> {
    let classes = [(name.to_owned(), n)].into();
    Some(Errors {
        classes,
        ..Errors::default()
    })
}

/// What drivers of these interfaces wrote.
fn flapping(all: &[(&str, u32)], last: u64) -> Option<Errors> {
    let seen = |(name, messages): &(&str, u32)| {
        let messages = *messages;
        ((*name).to_owned(), LinkSeen { messages, last })
    };
    Some(Errors {
        classes: [("link".to_owned(), 99)].into(),
        links: all.iter().map(seen).collect(),
        ..Errors::default()
    })
}

fn last(class: &str, at: u64) -> Option<Errors> {
    let last = LastError {
        at,
        class: class.into(),
        text: "I/O error, dev sda".into(),
    };
    Some(Errors {
        last: Some(last),
        ..Errors::default()
    })
}

/// What is said of a file server.
fn silent(at: u64) -> Option<Errors> {
    let said = last("file_server", at)?.last?;
    Some(Errors {
        servers: [("filer".to_owned(), said.clone())].into(),
        lasts: [("file_server".to_owned(), said)].into(),
        ..Errors::default()
    })
}

fn memory_errors(corrected: u64, uncorrected: u64) -> Option<Vec<Controller>> {
    let name = "mc0".into();
    Some(vec![Controller {
        name,
        corrected,
        uncorrected,
    }])
}

fn port(lost: bool) -> Option<Vec<Port>> {
    Some(vec![Port {
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
        lost,
        flaps: 0,
        last_flap: None,
    }])
}

fn flaps(n: u32, at: u64) -> Option<Vec<Port>> {
    let mut found = port(false)?;
    for p in &mut found {
        (p.flaps, p.last_flap) = (n, Some(at));
    }
    Some(found)
}

/// A file system failed, and something else wrote an error after it.
fn masked(at: u64) -> Option<Errors> {
    let mut errors = last("other", NOW)?;
    let filesystem = last("filesystem", at)?.last?;
    errors.lasts.insert("filesystem".into(), filesystem);
    Some(errors)
}

fn sensor(value: i64) -> Option<Vec<Sensor>> {
    Some(vec![Sensor {
        chip: "nvme".into(),
        label: "Composite".into(),
        kind: SensorKind::Temperature,
        value,
        critical: Some(84_850),
    }])
}

fn check(verdict: Verdict) -> Option<Checks> {
    let result = CheckResult {
        name: "scratch".into(),
        verdict,
        line: "not mounted".into(),
    };
    Some(Checks {
        results: vec![result],
        ..Checks::default()
    })
}

fn services(slurmd_running: bool) -> Option<ServicesFound> {
    let services = Services {
        slurmd_running: Some(slurmd_running),
        munge_running: Some(true),
        ..Services::default()
    };
    Some(ServicesFound {
        services,
        munge_version: None,
    })
}

fn out() -> OutOfService {
    OutOfService {
        since: NOW,
        reasons: vec![Reason {
            code: "gpu_lost".into(),
            subject: "1b:00".into(),
            message: "GPU 3".into(),
        }],
        waits_for: None,
    }
}

type Set = Box<dyn Fn(&mut Figures, Instant)>;

fn eight() -> Gpus {
    Gpus {
        nvidia: 8,
        ..Gpus::default()
    }
}

fn set(f: impl Fn(&mut Figures, Instant) + 'static) -> Set {
    Box::new(f)
}

/// Code, what provokes it, and what is just not enough.
fn cases() -> Vec<(&'static str, Set, Set)> {
    let bytes = |available| {
        Some(Memory {
            total: 100 << 30,
            available,
        })
    };
    let disk = |available| {
        Some(Storage {
            total: 1000,
            available,
            used: 1000 - available,
        })
    };
    let hot = |celsius| {
        gpu(Gpu {
            temperature: Some(celsius),
            ..Gpu::default()
        })
    };
    let rows = |failed, pending| {
        let remapped = Some(Remapped {
            failed,
            pending,
            ..Remapped::default()
        });
        gpu(Gpu {
            remapped,
            ..Gpu::default()
        })
    };
    let lost = || {
        gpu(Gpu {
            lost: true,
            ..Gpu::default()
        })
    };
    let ecc = |n| {
        gpu(Gpu {
            ecc_uncorrected: Some(n),
            ..Gpu::default()
        })
    };
    let links = |active| {
        gpu(Gpu {
            links: Some(Links {
                active,
                total: 12,
                errors: 0,
            }),
            ..Gpu::default()
        })
    };
    let slowed = |by: &[&str]| {
        let throttled_by = by.iter().map(|w| (*w).to_owned()).collect();
        gpu(Gpu {
            throttled_by,
            ..Gpu::default()
        })
    };
    vec![
        (
            "cpu_hot",
            set(|f, n| f.temperature.set(Some(95), n)),
            set(|f, n| f.temperature.set(Some(94), n)),
        ),
        (
            "memory_exhausted",
            set(move |f, n| f.memory.set(bytes(1 << 29), n)),
            set(move |f, n| f.memory.set(bytes(2 << 30), n)),
        ),
        (
            "memory_stalled",
            set(|f, n| f.pressure.set(pressure("memory", 2000), n)),
            set(|f, n| f.pressure.set(pressure("memory", 1999), n)),
        ),
        (
            "io_stalled",
            set(|f, n| f.pressure.set(pressure("io", 5000), n)),
            set(|f, n| f.pressure.set(pressure("io", 4999), n)),
        ),
        (
            "storage_full",
            set(move |f, n| f.storage.set(disk(9), n)),
            set(move |f, n| f.storage.set(disk(10), n)),
        ),
        (
            "disk_errors",
            set(|f, n| f.errors.set(last("io", NOW - 3599), n)),
            set(|f, n| f.errors.set(last("io", NOW - 3600), n)),
        ),
        (
            "file_server_errors",
            set(|f, n| f.errors.set(silent(NOW - 3599), n)),
            set(|f, n| f.errors.set(silent(NOW - 3600), n)),
        ),
        (
            // One that answers again is on record for the day, and no finding.
            "file_server_errors",
            set(|f, n| f.errors.set(silent(NOW), n)),
            set(|f, n| f.errors.set(last("file_server", NOW), n)),
        ),
        (
            "filesystem_errors",
            set(|f, n| f.errors.set(last("filesystem", NOW), n)),
            set(|f, n| f.errors.set(last("other", NOW), n)),
        ),
        (
            "kernel_hung",
            set(|f, n| f.errors.set(last("hang", NOW), n)),
            set(|f, n| f.errors.set(last("hang", 0), n)),
        ),
        (
            "link_flapping",
            set(|f, n| f.errors.set(flapping(&[("eth0", 3)], NOW - 3599), n)),
            set(|f, n| f.errors.set(flapping(&[("eth0", 3)], NOW - 3600), n)),
        ),
        (
            // A switch that goes down takes every card's link with it, once.
            "link_flapping",
            set(|f, n| f.errors.set(flapping(&[("eth0", 1), ("eth1", 3)], NOW), n)),
            set(|f, n| {
                let twice = [("eth0", 2), ("eth1", 2), ("eth2", 2)];
                f.errors.set(flapping(&twice, NOW), n);
            }),
        ),
        (
            "machine_checks",
            set(|f, n| f.errors.set(class("mce", 1), n)),
            set(|f, n| f.errors.set(class("mce", 0), n)),
        ),
        (
            "memory_killed",
            set(|f, n| f.errors.set(class("oom", 1), n)),
            set(|f, n| f.errors.set(class("oom", 0), n)),
        ),
        (
            "pcie_errors",
            set(|f, n| f.errors.set(class("pcie", 1), n)),
            set(|f, n| f.errors.set(class("pcie", 0), n)),
        ),
        (
            "service_errors",
            set(|f, n| f.errors.set(class("service", 10), n)),
            set(|f, n| f.errors.set(class("service", 9), n)),
        ),
        (
            "gpu_xid_restart",
            set(|f, n| f.errors.set(xid(94), n)),
            set(|f, n| f.errors.set(xid(13), n)),
        ),
        (
            "gpu_xid_reset",
            set(|f, n| f.errors.set(xid(48), n)),
            set(|f, n| f.errors.set(xid(31), n)),
        ),
        (
            "gpu_xid_reboot",
            set(|f, n| f.errors.set(xid(79), n)),
            set(|f, n| f.errors.set(xid(43), n)),
        ),
        (
            "gpu_xid_replace",
            set(|f, n| f.errors.set(xid(64), n)),
            set(|f, n| f.errors.set(xid(63), n)),
        ),
        (
            "gpu_lost",
            set(move |f, n| f.gpus.set(lost(), n)),
            set(|f, n| f.gpus.set(gpu(Gpu::default()), n)),
        ),
        (
            "gpus_unknown",
            set(|f, n| {
                f.pci_gpus.set(Some(eight()), n);
                f.gpus.set(None, n);
            }),
            set(|f, n| {
                f.pci_gpus.set(Some(Gpus::default()), n);
                f.gpus.set(None, n);
            }),
        ),
        (
            "gpu_memory_worn",
            set(move |f, n| f.gpus.set(rows(true, false), n)),
            set(move |f, n| f.gpus.set(rows(false, false), n)),
        ),
        (
            "gpu_reset_due",
            set(move |f, n| f.gpus.set(rows(false, true), n)),
            set(move |f, n| f.gpus.set(rows(false, false), n)),
        ),
        (
            "gpu_ecc_uncorrected",
            set(move |f, n| f.gpus.set(ecc(1), n)),
            set(move |f, n| f.gpus.set(ecc(0), n)),
        ),
        (
            "gpu_hot",
            set(move |f, n| f.gpus.set(hot(90), n)),
            set(move |f, n| f.gpus.set(hot(89), n)),
        ),
        (
            "gpu_throttled",
            set(move |f, n| f.gpus.set(slowed(&["hw_thermal"]), n)),
            set(move |f, n| f.gpus.set(slowed(&["power cap"]), n)),
        ),
        (
            "nvlink_down",
            set(move |f, n| f.gpus.set(links(11), n)),
            set(move |f, n| f.gpus.set(links(0), n)),
        ),
        (
            "memory_corrected",
            set(|f, n| f.memory_errors.set(memory_errors(1, 0), n)),
            set(|f, n| f.memory_errors.set(memory_errors(0, 0), n)),
        ),
        (
            "memory_uncorrected",
            set(|f, n| f.memory_errors.set(memory_errors(0, 1), n)),
            set(|f, n| f.memory_errors.set(memory_errors(0, 0), n)),
        ),
        (
            "link_lost",
            set(|f, n| f.ports.set(port(true), n)),
            set(|f, n| f.ports.set(port(false), n)),
        ),
        (
            "link_flapping",
            set(|f, n| f.ports.set(flaps(3, NOW - 3599), n)),
            set(|f, n| f.ports.set(flaps(2, NOW), n)),
        ),
        (
            "link_flapping",
            set(|f, n| f.ports.set(flaps(9, NOW - 3599), n)),
            set(|f, n| f.ports.set(flaps(9, NOW - 3600), n)),
        ),
        (
            "filesystem_errors",
            set(|f, n| f.errors.set(masked(NOW - 3599), n)),
            set(|f, n| f.errors.set(masked(NOW - 3600), n)),
        ),
        (
            "sensor_critical",
            set(|f, n| f.sensors.set(sensor(84_850), n)),
            set(|f, n| f.sensors.set(sensor(84_849), n)),
        ),
        (
            "site_check_degraded",
            set(|f, n| f.checks.set(check(Verdict::Degraded), n)),
            set(|f, n| f.checks.set(check(Verdict::Passed), n)),
        ),
        (
            "site_check_failed",
            set(|f, n| f.checks.set(check(Verdict::Failed), n)),
            set(|f, n| f.checks.set(check(Verdict::Passed), n)),
        ),
        (
            "slurm_down",
            set(|f, n| f.slurm.set(Some(node(SlurmState::Down, "x")), n)),
            set(|f, n| f.slurm.set(Some(node(SlurmState::Mixed, "x")), n)),
        ),
        (
            "slurm_drain",
            set(|f, n| f.slurm.set(Some(node(SlurmState::Drain, "bad disk")), n)),
            set(|f, n| f.slurm.set(Some(node(SlurmState::Idle, "x")), n)),
        ),
        (
            "slurm_silent",
            set(|f, n| f.slurm.set(Some(Answer::Silent), n)),
            set(|f, n| f.slurm.set(Some(Answer::NotHere), n)),
        ),
        (
            "service_down",
            set(|f, n| {
                f.slurm.set(Some(node(SlurmState::Idle, "x")), n);
                f.services.set(services(false), n);
            }),
            set(|f, n| {
                f.slurm.set(Some(Answer::NotHere), n);
                f.services.set(services(false), n);
            }),
        ),
    ]
}

fn judged(set: &Set, beside: &Beside<'_>) -> Vec<Finding> {
    let now = Instant::now();
    let mut figures = Figures::default();
    set(&mut figures, now);
    findings(&figures, beside, now)
}

#[test]
fn a_file_server_that_does_not_answer_drains_no_node_and_a_broken_disk_does() {
    assert_eq!(kind("file_server_errors").unwrap().drains(), None);
    assert!(kind("filesystem_errors").unwrap().drains().is_some());
}

#[test]
fn a_gpu_of_which_the_driver_may_not_tell_is_unknown_and_not_lost() {
    let refused = Gpu {
        index: 3,
        refused: Some("no permission".into()),
        ..Gpu::default()
    };
    let found = judged(
        &set(move |f, n| f.gpus.set(gpu(refused.clone()), n)),
        &Beside::default(),
    );
    let shown: Vec<String> = found.iter().map(Finding::shown).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(
        shown[0].starts_with("gpus_unknown") && shown[0].contains("GPU 3") && shown[0].contains("permission"),
        "{shown:?}"
    );
}

#[test]
fn why_nvml_is_silent_and_what_helps_stand_in_the_finding() {
    let silent = |f: &mut Figures, n| {
        f.pci_gpus.set(Some(eight()), n);
        Reading::Gpus(None).apply(f, n);
        Reading::NvmlSilent(Some("no reboot helps: install NVIDIA's driver".into())).apply(f, n);
    };
    let found = judged(&set(silent), &Beside::default());
    let shown: Vec<String> = found.iter().map(Finding::shown).collect();
    assert_eq!(
        shown,
        [
            "gpus_unknown: the driver of the 8 GPUs on the bus does not answer: no reboot helps: install NVIDIA's driver; look at `nvidia-smi`, `dmesg`, the versions of the driver's package and of the module that is loaded, and `virtengine-node-agent doctor`; reboot the node only if none of them says what else helps"
        ]
    );
}

#[test]
fn every_line_of_the_catalogue_is_found_at_its_threshold_and_not_below() {
    let beside = Beside {
        unix: NOW,
        ..Beside::default()
    };
    let mut provoked = BTreeSet::new();
    for (code, enough, too_little) in cases() {
        let found = judged(&enough, &beside);
        assert_eq!(found.iter().map(|f| f.kind.code).collect::<Vec<_>>(), [code]);
        let expected = match kind(code).unwrap().severity {
            Severity::Notice => HealthStatus::Healthy,
            Severity::Degraded => HealthStatus::Degraded,
            Severity::Unhealthy => HealthStatus::Unhealthy,
            Severity::Draining => HealthStatus::Draining,
        };
        assert_eq!(status(&found), expected, "{code}");
        assert!(found[0].shown().starts_with(code) && !found[0].message.is_empty());
        assert_eq!(judged(&too_little, &beside), [], "{code}");
        provoked.insert(code);
    }
    let nothing = set(|_, _| {});
    for (code, beside) in [
        (
            "collector_stuck",
            Beside {
                stuck: &["storage"],
                ..Beside::default()
            },
        ),
        (
            "clock_skew",
            Beside {
                skew_ms: Some(-10_001),
                ..Beside::default()
            },
        ),
        (
            "task_journal_damaged",
            Beside {
                tasks: &[("task_journal_damaged", "t-1".to_owned())],
                ..Beside::default()
            },
        ),
        (
            "task_leftovers",
            Beside {
                tasks: &[("task_leftovers", "vm-1".to_owned())],
                ..Beside::default()
            },
        ),
        (
            "task_probe_failed",
            Beside {
                tasks: &[("task_probe_failed", "memory".to_owned())],
                ..Beside::default()
            },
        ),
        (
            "hardware_changed",
            Beside {
                hardware: Some("another board"),
                ..Beside::default()
            },
        ),
        (
            "out_of_service",
            Beside {
                out: Some(&out()),
                ..Beside::default()
            },
        ),
    ] {
        assert_eq!(judged(&nothing, &beside)[0].kind.code, code);
        provoked.insert(code);
    }
    assert_eq!(
        judged(
            &nothing,
            &Beside {
                skew_ms: Some(10_000),
                ..Beside::default()
            }
        ),
        []
    );
    let all: BTreeSet<&str> = CATALOGUE.iter().map(|k| k.code).collect();
    assert_eq!(provoked, all);
    assert!(
        CATALOGUE.windows(2).all(|w| w[0].code < w[1].code),
        "sorted, each once"
    );
}

#[test]
fn a_fully_used_node_is_healthy_and_so_is_an_unknown_one() {
    let busy = set(|f, now| {
        f.cpu.set(Some(100), now);
        f.memory.set(
            Some(Memory {
                total: 100 << 30,
                available: 5 << 30,
            }),
            now,
        );
        f.temperature.set(Some(85), now);
    });
    for figures in [set(|_, _| {}), busy] {
        assert_eq!(
            status(&judged(&figures, &Beside::default())),
            HealthStatus::Healthy
        );
    }
}

#[test]
fn the_gravest_comes_first_and_the_administrators_drain_outranks_all() {
    let much = set(|f, now| {
        f.temperature.set(Some(99), now);
        f.memory.set(
            Some(Memory {
                total: 100 << 30,
                available: 1,
            }),
            now,
        );
        f.slurm.set(Some(node(SlurmState::Drain, "bad disk")), now);
    });
    let found = judged(&much, &Beside::default());
    assert_eq!(
        found.iter().map(|f| f.kind.code).collect::<Vec<_>>(),
        ["slurm_drain", "memory_exhausted", "cpu_hot"]
    );
    assert_eq!(status(&found), HealthStatus::Draining);
}

#[test]
fn what_the_provider_ordered_is_no_drain_of_the_site() {
    let drained = |reason: &'static str, ordered| {
        let figures = set(move |f, now| f.slurm.set(Some(node(SlurmState::Drain, reason)), now));
        status(&judged(
            &figures,
            &Beside {
                ordered,
                ..Beside::default()
            },
        ))
    };
    assert_eq!(
        drained("virtengine order: new disk [root@x]", true),
        HealthStatus::Healthy
    );
    assert_eq!(
        drained("virtengine order: new disk [root@x]", false),
        HealthStatus::Draining
    );
    assert_eq!(drained("bad disk", true), HealthStatus::Draining);
    // The agent's own drain is told once, in its own words.
    let figures = set(|f, now| {
        let slurm = node(SlurmState::Drain, "virtengine health: gpu_lost [root@x]");
        f.slurm.set(Some(slurm), now);
    });
    let out = out();
    let beside = Beside {
        out: Some(&out),
        ..Beside::default()
    };
    let found = judged(&figures, &beside);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].shown(),
        "out_of_service: out of service for gpu_lost: GPU 3; watch it"
    );
}

#[test]
fn an_administrators_drain_holds_until_slurm_says_otherwise() {
    let codes = |answers: Vec<Answer<SlurmNode>>| {
        let figures = set(move |f, now| {
            for answer in answers.clone() {
                Reading::Slurm(answer).apply(f, now);
            }
        });
        let found = judged(&figures, &Beside::default());
        found.iter().map(|f| f.kind.code).collect::<Vec<_>>()
    };
    let drained = || node(SlurmState::Drain, "bad disk");
    let both = ["slurm_drain", "slurm_silent"];
    assert_eq!(codes(vec![drained(), Answer::Silent]), both);
    assert_eq!(codes(vec![drained(), Answer::Silent, Answer::Silent]), both);
    let idle = || node(SlurmState::Idle, "x");
    assert_eq!(codes(vec![drained(), Answer::Silent, idle()]), [""; 0]);
    assert_eq!(codes(vec![drained(), idle(), Answer::Silent]), ["slurm_silent"]);
    assert_eq!(codes(vec![drained(), Answer::NotHere]), [""; 0]);
    // Its programs hang.
    let mut figures = Figures::default();
    let (now, long) = (Instant::now(), std::time::Duration::from_secs(3600));
    Reading::Slurm(drained()).apply(&mut figures, now);
    let found = findings(&figures, &Beside::default(), now + long);
    assert_eq!(found.iter().map(|f| f.kind.code).collect::<Vec<_>>(), both);
}

#[test]
fn a_drain_holds_while_the_node_is_down() {
    let down_as = |state: &str, reason: &str| {
        let Answer::Said(node) = node(SlurmState::Down, reason) else {
            panic!("it is said");
        };
        let state_text = state.into();
        Answer::Said(SlurmNode { state_text, ..node })
    };
    let down = |reason: &str| down_as("DOWN*+DRAIN", reason);
    let told = |answers: Vec<Answer<SlurmNode>>| {
        let figures = set(move |f, now| {
            for answer in answers.clone() {
                Reading::Slurm(answer).apply(f, now);
            }
        });
        let beside = Beside {
            ordered: true,
            ..Beside::default()
        };
        let found = judged(&figures, &beside);
        let codes: Vec<_> = found.iter().map(|f| f.kind.code).collect();
        (codes, status(&found))
    };
    let draining = |codes: [&'static str; 2]| (codes.to_vec(), HealthStatus::Draining);
    assert_eq!(
        told(vec![down("bad disk")]),
        draining(["slurm_drain", "slurm_down"])
    );
    let silent = draining(["slurm_drain", "slurm_silent"]);
    assert_eq!(told(vec![down("bad disk"), Answer::Silent]), silent);
    let maintained = down_as("IDLE*+MAINTENANCE", "new rack");
    assert_eq!(told(vec![maintained, Answer::Silent]), silent);
    // The provider's order is none of the site's.
    let ordered = told(vec![down("virtengine order: new disk")]);
    assert_eq!(ordered, (vec!["slurm_down"], HealthStatus::Unhealthy));
}

#[test]
fn a_drain_is_known_before_slurm_has_been_asked() {
    let remembered = |by, ordered| {
        let figures = set(move |f, _| {
            f.drained = Some(Drained {
                state: "IDLE+DRAIN".into(),
                reason: Some("bad disk".into()),
                by,
            });
        });
        let beside = Beside {
            ordered,
            ..Beside::default()
        };
        let found = judged(&figures, &beside);
        found.into_iter().map(|f| f.message).collect::<Vec<_>>()
    };
    let drain = ["Slurm has this node idle+drain: bad disk"];
    assert_eq!(remembered(None, false), drain);
    assert_eq!(remembered(None, true), drain);
    assert_eq!(remembered(Some(By::Order), true), [""; 0]);
    assert_eq!(remembered(Some(By::Order), false), drain);
}

#[test]
fn what_root_rehearses_counts_and_is_called_so() {
    let drill = set(|f, now| {
        let rehearsed = vec![
            ("gpu_lost".into(), "GPU 3".into()),
            ("no_such_code".into(), String::new()),
        ];
        f.checks.set(
            Some(Checks {
                rehearsed,
                ..Checks::default()
            }),
            now,
        );
    });
    let found = judged(&drill, &Beside::default());
    assert_eq!((found.len(), found[0].message.as_str()), (1, "(rehearsed) GPU 3"));
    assert_eq!(status(&found), HealthStatus::Degraded);
}

#[test]
fn the_page_shows_the_catalogue() {
    let page = include_str!("../../../docs/agent-health.md");
    assert!(
        page.contains(&table()),
        "docs/agent-health.md must hold this table:\n{}",
        table()
    );
}
