//! Findings about devices and the batch system. Pure.

use std::time::Instant;

use hpc_schema::heartbeat::SlurmState;

use super::machine::{FLAPS, RECENT};
use super::{Beside, Findings};
use crate::probe::errors::xid::{self, Action};
use crate::probe::gpu::{Gpu, POWER_CAP};
use crate::probe::hardware::sensors::Kind;
use crate::probe::slurm::{Answer, By, Drained};
use crate::sample::Figures;

/// GPUs slow down at 85–95 °C.
const GPU_HOT: i32 = 90;

/// What Slurm says of this node: its administrator's word counts, until Slurm says otherwise. What the agent itself told
/// Slurm on the provider's order is no news to the chain, which has the order; it would otherwise outlive the order's end.
/// Its own drain is told by a finding of its own.
pub(super) fn slurm(figures: &Figures, beside: &Beside<'_>, now: Instant, into: &mut Findings) {
    let said = figures.slurm.fresh(now);
    let drained = match said {
        // Also of a node that is down: `unhealthy` alone would make it ACTIVE on chain when it comes back from OFFLINE.
        Some(Answer::Said(node)) => Drained::of(node),
        // The chain would give the node work again while nobody knows that it may have any.
        Some(Answer::Silent) | None => figures.drained.clone(),
        Some(Answer::NotHere) => None,
    };
    if let Some(d) = drained.filter(|d| !is_ours(d, beside)) {
        into.add("slurm_drain", has(&d.state, d.reason.as_deref()));
    }
    match said {
        Some(Answer::Silent) => into.add(
            "slurm_silent",
            "Slurm does not answer: nothing is known to be free",
        ),
        Some(Answer::Said(node)) if node.state == SlurmState::Down => {
            into.add("slurm_down", has(&node.state_text, node.reason.as_deref()));
        }
        Some(Answer::Said(_)) => {}
        // It was asked and does not come back.
        None if figures.slurm.last().is_some_and(|a| *a != Answer::NotHere) => into.add(
            "slurm_silent",
            "Slurm's programs hang: nothing is known to be free",
        ),
        Some(Answer::NotHere) | None => return,
    }
    if let Some(found) = figures.services.fresh(now) {
        let s = &found.services;
        for (name, running) in [("slurmd", s.slurmd_running), ("munged", s.munge_running)] {
            if running == Some(false) {
                into.add_of("service_down", name, format!("{name} does not run"));
            }
        }
    }
}

/// Whether it is the agent's own, and still wanted.
fn is_ours(drained: &Drained, beside: &Beside<'_>) -> bool {
    match drained.by {
        Some(By::Order) => beside.ordered,
        Some(By::Health) => beside.out.is_some(),
        None => false,
    }
}

/// How Slurm has this node, and why.
fn has(state: &str, reason: Option<&str>) -> String {
    let why = reason.map_or(String::new(), |r| format!(": {r}"));
    format!("Slurm has this node {}{why}", state.to_lowercase())
}

/// Lost and broken GPUs; a driver that does not answer.
pub(super) fn gpus(figures: &Figures, now: Instant, into: &mut Findings) {
    let report = figures.gpus.fresh(now);
    for gpu in report.iter().flat_map(|r| &r.gpus) {
        let name = format!(
            "GPU {} ({})",
            gpu.index,
            gpu.pci.as_deref().unwrap_or("unknown place")
        );
        let subject = gpu.pci.clone().unwrap_or_else(|| gpu.index.to_string());
        let mut add = |code, message| into.add_of(code, &subject, message);
        if gpu.lost {
            add("gpu_lost", format!("{name} does not answer any more"));
        }
        if let Some(why) = &gpu.refused {
            add(
                "gpus_unknown",
                format!("the driver tells nothing of {name}: {why}"),
            );
        }
        memory_of(gpu, &name, &mut add);
        if let Some(celsius) = gpu.temperature.filter(|c| *c >= GPU_HOT) {
            add("gpu_hot", format!("{name} has {celsius} °C"));
        }
        // At its power limit a GPU works as hard as it may: full use is what it is for.
        let slowed = gpu.throttled_by.iter().map(String::as_str);
        let slowed: Vec<&str> = slowed.filter(|by| *by != POWER_CAP).collect();
        if !slowed.is_empty() {
            add(
                "gpu_throttled",
                format!("{name} is slowed down: {}", slowed.join(", ")),
            );
        }
        // None at all: nothing is plugged in.
        if let Some(links) = gpu.links.filter(|l| l.active > 0 && l.active < l.total) {
            add(
                "nvlink_down",
                format!("{name} has {} of {} NVLinks up", links.active, links.total),
            );
        }
    }
    let Some(n) = figures.pci_gpus.fresh(now).map(|b| b.driven()).filter(|n| *n > 0) else {
        return;
    };
    match report {
        None if figures.gpus.age(now).is_some() => {
            let why = figures.nvml_silent.as_ref();
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            into.add(
                "gpus_unknown",
                format!("the driver of the {n} GPUs on the bus does not answer{why}"),
            );
        }
        // Which one is not known: one more is another trouble.
        Some(r) if r.gpus.len() < usize::from(n) => into.add_of(
            "gpu_lost",
            &format!("{} of {n}", r.gpus.len()),
            format!("{} of the {n} GPUs on the bus answer", r.gpus.len()),
        ),
        _ => {}
    }
}

fn memory_of(gpu: &Gpu, name: &str, add: &mut impl FnMut(&'static str, String)) {
    if gpu.remapped.is_some_and(|r| r.failed) {
        add("gpu_memory_worn", format!("{name} has no spare memory rows left"));
    }
    if gpu.remapped.is_some_and(|r| r.pending) {
        add(
            "gpu_reset_due",
            format!("{name} waits for a reset to replace a memory row"),
        );
    }
    if let Some(n) = gpu.ecc_uncorrected.filter(|n| *n > 0) {
        add(
            "gpu_ecc_uncorrected",
            format!("{name} has seen {n} uncorrected memory errors"),
        );
    }
}

/// What GPUs' drivers wrote to the kernel's log, each fault once.
pub(super) fn faults(figures: &Figures, now: Instant, into: &mut Findings) {
    let mut seen: Vec<(&str, u32)> = Vec::new();
    for fault in figures.errors.fresh(now).iter().flat_map(|e| &e.xids) {
        let Some(x) = xid::look_up(fault.code) else {
            continue;
        };
        let code = match x.action {
            Action::None => continue,
            Action::RestartWork => "gpu_xid_restart",
            Action::ResetGpu => "gpu_xid_reset",
            Action::Reboot => "gpu_xid_reboot",
            Action::Replace => "gpu_xid_replace",
        };
        if !seen.contains(&(&fault.device, fault.code)) {
            seen.push((&fault.device, fault.code));
            into.add_of(
                code,
                &fault.device,
                format!("GPU {}: Xid {} ({})", fault.device, x.code, x.meaning),
            );
        }
    }
}

/// Memory errors, links, sensors.
pub(super) fn instruments(figures: &Figures, beside: &Beside<'_>, now: Instant, into: &mut Findings) {
    for controller in figures.memory_errors.fresh(now).into_iter().flatten() {
        for (code, n, what) in [
            ("memory_uncorrected", controller.uncorrected, "uncorrected"),
            ("memory_corrected", controller.corrected, "corrected"),
        ] {
            if n > 0 {
                into.add_of(
                    code,
                    &controller.name,
                    format!("{} has seen {n} {what} memory errors since boot", controller.name),
                );
            }
        }
    }
    let ports = || figures.ports.fresh(now).into_iter().flatten();
    for port in ports().filter(|p| p.lost) {
        let message = format!(
            "{} port {} went {} ({})",
            port.device, port.port, port.state, port.physical
        );
        into.add_of("link_lost", &format!("{}/{}", port.device, port.port), message);
    }
    let recent = |at: u64| at.saturating_add(RECENT) > beside.unix;
    for port in ports().filter(|p| p.flaps >= FLAPS && p.last_flap.is_some_and(recent)) {
        let message = format!(
            "{} port {} went down {} times within 24 h",
            port.device, port.port, port.flaps
        );
        into.add_of(
            "link_flapping",
            &format!("{}/{}", port.device, port.port),
            message,
        );
    }
    let sensors = figures.sensors.fresh(now).into_iter().flatten();
    for sensor in sensors.filter(|s| s.kind == Kind::Temperature) {
        if sensor.critical.is_some_and(|limit| sensor.value >= limit) {
            let message = format!(
                "{} {} has {} °C, its limit",
                sensor.chip,
                sensor.label,
                sensor.value / 1000
            );
            into.add_of(
                "sensor_critical",
                &format!("{} {}", sensor.chip, sensor.label),
                message,
            );
        }
    }
}
