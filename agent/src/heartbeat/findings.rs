//! Findings about devices and the batch system. Pure.

use std::time::Instant;

use hpc_schema::heartbeat::SlurmState;

use super::{Finding, Severity};
use crate::probe::errors::xid;
use crate::probe::slurm::{Answer, is_ours};
use crate::sample::Figures;

fn find(into: &mut Vec<Finding>, severity: Severity, code: &'static str, message: String) {
    into.push(Finding {
        severity,
        code,
        message,
    });
}

/// What Slurm says of this node: its administrator's word counts. What the agent itself told Slurm on the provider's
/// order is no news to the chain, which has the order; it would otherwise outlive the order's end.
pub(super) fn slurm(figures: &Figures, ordered: bool, now: Instant, into: &mut Vec<Finding>) {
    match figures.slurm.fresh(now) {
        Some(Answer::Silent) => {
            find(
                into,
                Severity::Degraded,
                "slurm_silent",
                "Slurm does not answer: nothing is known to be free".into(),
            );
        }
        Some(Answer::Said(node)) => {
            let why = node.reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
            let message = format!("Slurm has this node {}{why}", node.state_text.to_lowercase());
            match node.state {
                SlurmState::Drain if ordered && is_ours(node) => {}
                SlurmState::Drain => find(into, Severity::Draining, "slurm_drain", message),
                SlurmState::Down => find(into, Severity::Unhealthy, "slurm_down", message),
                _ => {}
            }
        }
        Some(Answer::NotHere) | None => {}
    }
}

/// Lost and broken GPUs; a driver that does not answer.
pub(super) fn gpus(figures: &Figures, now: Instant, into: &mut Vec<Finding>) {
    let report = figures.gpus.fresh(now);
    for gpu in report.iter().flat_map(|r| &r.gpus) {
        let name = || {
            format!(
                "GPU {} ({})",
                gpu.index,
                gpu.pci.as_deref().unwrap_or("unknown place")
            )
        };
        if gpu.lost {
            find(
                into,
                Severity::Degraded,
                "gpu_lost",
                format!("{} does not answer any more", name()),
            );
        }
        if gpu.remapped.is_some_and(|r| r.failed) {
            let message = format!("{} has no spare memory rows left; have it replaced", name());
            find(into, Severity::Degraded, "gpu_memory_worn", message);
        }
        if gpu.remapped.is_some_and(|r| r.pending) {
            let message = format!("{} waits for a reset to replace a memory row", name());
            find(into, Severity::Degraded, "gpu_reset_due", message);
        }
    }
    if let Some(n) = figures.pci_gpus.fresh(now).filter(|n| **n > 0)
        && report.is_none()
        && figures.gpus.age(now).is_some()
    {
        let message = format!("the driver of the {n} GPUs on the bus does not answer");
        find(into, Severity::Degraded, "gpus_unknown", message);
    }
    for seen in figures.errors.fresh(now).iter().flat_map(|e| &e.xids) {
        if let Some(x) = xid::look_up(seen.code).filter(|x| x.action.blocks_work()) {
            let message = format!(
                "GPU {}: Xid {} ({}); {}",
                seen.device,
                x.code,
                x.meaning,
                x.action.advice()
            );
            find(into, Severity::Degraded, "gpu_xid", message);
        }
    }
}

/// Memory errors and links.
pub(super) fn instruments(figures: &Figures, now: Instant, into: &mut Vec<Finding>) {
    let Some(instruments) = figures.instruments.fresh(now) else {
        return;
    };
    for controller in instruments.memory_errors.iter().filter(|c| c.uncorrected > 0) {
        let message = format!(
            "{} has seen {} uncorrected memory errors since boot",
            controller.name, controller.uncorrected
        );
        find(into, Severity::Degraded, "memory_uncorrected", message);
    }
    for port in instruments.ports.iter().filter(|p| p.lost) {
        let message = format!(
            "{} port {} went {} ({})",
            port.device, port.port, port.state, port.physical
        );
        find(into, Severity::Degraded, "link_lost", message);
    }
    for sensor in &instruments.sensors {
        if sensor.kind == crate::probe::hardware::sensors::Kind::Temperature
            && sensor.critical.is_some_and(|limit| sensor.value >= limit)
        {
            let message = format!(
                "{} {} has {} °C, its limit",
                sensor.chip,
                sensor.label,
                sensor.value / 1000
            );
            find(into, Severity::Degraded, "sensor_critical", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heartbeat::judge;
    use crate::probe::errors::{Errors, XidSeen};
    use crate::probe::gpu::{Gpu, GpuReport, Remapped};
    use crate::probe::hardware::memory_errors::Controller;
    use crate::probe::slurm::SlurmNode;
    use crate::sample::Instruments;
    use hpc_schema::heartbeat::HealthStatus;

    fn judged(set: impl FnOnce(&mut Figures, Instant)) -> (HealthStatus, Vec<&'static str>) {
        let now = Instant::now();
        let mut f = Figures::default();
        set(&mut f, now);
        let (status, findings) = judge(&f, &[], false, now);
        (status, findings.iter().map(|f| f.code).collect())
    }

    fn node(state: SlurmState) -> Answer<SlurmNode> {
        Answer::Said(SlurmNode {
            state,
            state_text: "X".into(),
            reason: Some("bad disk".into()),
            cpus: 2,
            cpus_allocated: 0,
            cpus_usable: 2,
            memory_mib: 1000,
            memory_allocated_mib: 0,
            gpus: None,
            gpus_allocated: None,
            version: None,
        })
    }

    #[test]
    fn the_administrators_drain_is_reported_as_draining_whatever_else_is_wrong() {
        let drained = |f: &mut Figures, now| f.slurm.set(Some(node(SlurmState::Drain)), now);
        assert_eq!(judged(drained), (HealthStatus::Draining, vec!["slurm_drain"]));
        let both = |f: &mut Figures, now| {
            drained(f, now);
            f.temperature.set(Some(99), now);
        };
        assert_eq!(judged(both).0, HealthStatus::Draining);
        assert_eq!(
            judged(|f, now| f.slurm.set(Some(node(SlurmState::Down)), now)).0,
            HealthStatus::Unhealthy
        );
        assert_eq!(
            judged(|f, now| f.slurm.set(Some(node(SlurmState::Mixed)), now)).0,
            HealthStatus::Healthy
        );
        assert_eq!(
            judged(|f, now| f.slurm.set(Some(Answer::Silent), now)).1,
            ["slurm_silent"]
        );
        assert_eq!(
            judged(|f, now| f.slurm.set(Some(Answer::NotHere), now)).0,
            HealthStatus::Healthy
        );
    }

    #[test]
    fn what_the_provider_ordered_is_no_drain_of_the_site() {
        let now = Instant::now();
        let ours = |reason: &str| {
            let Answer::Said(n) = node(SlurmState::Drain) else {
                panic!()
            };
            let mut f = Figures::default();
            let reason = Some(reason.to_owned());
            f.slurm.set(Some(Answer::Said(SlurmNode { reason, ..n })), now);
            f
        };
        let f = ours("virtengine order: new disk [root@x]");
        assert_eq!(judge(&f, &[], true, now).0, HealthStatus::Healthy);
        assert_eq!(judge(&f, &[], false, now).0, HealthStatus::Draining);
        assert_eq!(judge(&ours("bad disk"), &[], true, now).0, HealthStatus::Draining);
    }

    #[test]
    fn broken_gpus_memory_and_faults_are_findings() {
        let set = |f: &mut Figures, now| {
            let worn = Remapped {
                failed: true,
                ..Remapped::default()
            };
            let gpus = vec![
                Gpu {
                    lost: true,
                    ..Gpu::default()
                },
                Gpu {
                    remapped: Some(worn),
                    ..Gpu::default()
                },
                Gpu::default(),
            ];
            f.gpus.set(Some(GpuReport { driver: None, gpus }), now);
            let xids = vec![
                XidSeen {
                    at: 0,
                    device: "0000:1b:00.0".into(),
                    code: 79,
                },
                XidSeen {
                    at: 0,
                    device: "0000:1b:00.0".into(),
                    code: 13,
                },
            ];
            f.errors.set(
                Some(Errors {
                    xids,
                    ..Errors::default()
                }),
                now,
            );
            let memory_errors = vec![Controller {
                name: "mc0".into(),
                corrected: 5,
                uncorrected: 1,
            }];
            f.instruments.set(
                Some(Instruments {
                    memory_errors,
                    ..Instruments::default()
                }),
                now,
            );
        };
        let (status, codes) = judged(set);
        assert_eq!(status, HealthStatus::Degraded);
        assert_eq!(
            codes,
            ["gpu_lost", "gpu_memory_worn", "gpu_xid", "memory_uncorrected"]
        );
        let silent = |f: &mut Figures, now| {
            f.pci_gpus.set(Some(8), now);
            f.gpus.set(None, now);
        };
        assert_eq!(judged(silent).1, ["gpus_unknown"]);
    }
}
