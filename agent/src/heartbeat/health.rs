//! The node's judgement of itself, from findings. Pure.
//!
//! A busy node is healthy: full use is what it is for. Degraded means that work may suffer, unhealthy that new work
//! should not be given.

use std::time::Instant;

use hpc_schema::heartbeat::HealthStatus;

use super::findings;
use crate::sample::Figures;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Work may suffer.
    Degraded,
    /// No new work should be given.
    Unhealthy,
    /// The site drains the node: outranks the others, or a fault that comes and goes would end the drain.
    Draining,
}

/// Something that is wrong with this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// Stable word.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// CPUs throttle at 95–105 °C.
const CPU_HOT: i32 = 95;
/// Of 60 seconds, the share in which *all* tasks waited for memory, in 0.01 %: the node thrashes.
const MEMORY_STALLED: u64 = 2000;

/// Judges what is known; `stuck` names collectors that do not answer, `ordered` says that the provider has this node
/// drained.
#[must_use]
pub fn judge(figures: &Figures, stuck: &[&str], ordered: bool, now: Instant) -> (HealthStatus, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut find = |severity, code, message: String| {
        findings.push(Finding {
            severity,
            code,
            message,
        });
    };
    if let Some(memory) = figures.memory.fresh(now)
        && memory.available < memory.total / 100
    {
        find(
            Severity::Unhealthy,
            "memory_exhausted",
            format!(
                "{} MiB of {} MiB memory are available",
                memory.available >> 20,
                memory.total >> 20
            ),
        );
    }
    if let Some(pressure) = figures.pressure.fresh(now) {
        for p in pressure.iter().filter(|p| p.resource == "memory") {
            if let Some(full) = p.full.filter(|full| *full >= MEMORY_STALLED) {
                let message = format!(
                    "all tasks waited for memory in {}.{:02} % of the last minute",
                    full / 100,
                    full % 100
                );
                find(Severity::Degraded, "memory_stalled", message);
            }
        }
    }
    if let Some(celsius) = figures.temperature.fresh(now).filter(|c| **c >= CPU_HOT) {
        find(Severity::Degraded, "cpu_hot", format!("the CPU has {celsius} °C"));
    }
    if let Some(storage) = figures.storage.fresh(now)
        && storage.available < storage.total / 100
    {
        find(
            Severity::Degraded,
            "storage_full",
            format!("{} MiB of storage are available", storage.available >> 20),
        );
    }
    findings::slurm(figures, ordered, now, &mut findings);
    findings::gpus(figures, now, &mut findings);
    findings::instruments(figures, now, &mut findings);
    findings.extend(stuck.iter().map(|name| Finding {
        severity: Severity::Degraded,
        code: "collector_stuck",
        message: format!("{name} does not answer"),
    }));
    let status = match findings.iter().map(|f| f.severity).max() {
        None => HealthStatus::Healthy,
        Some(Severity::Degraded) => HealthStatus::Degraded,
        Some(Severity::Unhealthy) => HealthStatus::Unhealthy,
        Some(Severity::Draining) => HealthStatus::Draining,
    };
    (status, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::memory::Memory;
    use crate::probe::pressure::Pressure;
    use crate::probe::storage::Storage;

    fn codes(set: impl FnOnce(&mut Figures, Instant), stuck: &[&str]) -> (HealthStatus, Vec<&'static str>) {
        let now = Instant::now();
        let mut f = Figures::default();
        set(&mut f, now);
        let (status, findings) = judge(&f, stuck, false, now);
        (status, findings.iter().map(|f| f.code).collect())
    }

    #[test]
    fn a_fully_used_node_is_healthy_and_so_is_an_unknown_one() {
        assert_eq!(codes(|_, _| {}, &[]), (HealthStatus::Healthy, vec![]));
        let busy = |f: &mut Figures, now| {
            f.cpu.set(Some(100), now);
            f.memory.set(
                Some(Memory {
                    total: 100 << 30,
                    available: 5 << 30,
                }),
                now,
            );
            f.temperature.set(Some(85), now);
        };
        assert_eq!(codes(busy, &[]), (HealthStatus::Healthy, vec![]));
    }

    #[test]
    fn each_finding_has_its_weight() {
        let memory = |f: &mut Figures, now| {
            f.memory.set(
                Some(Memory {
                    total: 100 << 30,
                    available: 1 << 29,
                }),
                now,
            );
        };
        assert_eq!(
            codes(memory, &[]),
            (HealthStatus::Unhealthy, vec!["memory_exhausted"])
        );
        let hot = |f: &mut Figures, now| f.temperature.set(Some(97), now);
        assert_eq!(
            codes(hot, &["storage"]),
            (HealthStatus::Degraded, vec!["cpu_hot", "collector_stuck"])
        );
        let full = |f: &mut Figures, now| {
            f.storage.set(
                Some(Storage {
                    total: 1000,
                    available: 9,
                    used: 991,
                }),
                now,
            );
            f.pressure.set(
                Some(vec![Pressure {
                    resource: "memory",
                    some: 9000,
                    full: Some(2500),
                }]),
                now,
            );
        };
        assert_eq!(
            codes(full, &[]),
            (HealthStatus::Degraded, vec!["memory_stalled", "storage_full"])
        );
    }
}
