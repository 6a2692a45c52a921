//! Which figures of a category are kept, as whole numbers. Pure.

use std::time::Instant;

use crate::probe::latency::average;
use crate::probe::slurm::Answer;
use crate::sample::{Category, Figure, Figures};

/// What is known of one category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// When the newest of them was measured; none if nothing was.
    pub taken: Option<Instant>,
    /// In the order of [`fields`]; none: unknown.
    pub figures: Vec<Option<i64>>,
}

/// Names of the figures of a category, with their units.
#[must_use]
pub fn fields(category: Category) -> &'static [&'static str] {
    match category {
        Category::Capacity => &["cores", "memory_available_mib", "storage_available_mib"],
        Category::HealthStatus => &["load_1m_millionths", "uptime_s", "errors_24h", "warnings_24h"],
        Category::Utilization => &["cpu_percent", "memory_percent", "disk_percent", "network_percent"],
        Category::Gpu => &["gpus", "gpu_percent", "gpu_memory_percent", "gpu_celsius"],
        Category::Latency => &["peers", "latency_us", "loss_percent"],
        Category::JobCounts => &["running", "pending", "completed_24h", "failed_24h"],
        Category::Temperature => &["cpu_celsius", "power_milliwatts"],
    }
}

/// What is fresh of `category`.
#[must_use]
pub fn values(category: Category, f: &Figures, now: Instant) -> Values {
    let taken = |all: &[Option<Instant>]| all.iter().flatten().max().copied();
    let (taken, figures) = match category {
        Category::Capacity => (
            taken(&[f.cores.taken(), f.storage.taken()]),
            vec![
                get(&f.cores, now, |n| whole(*n)),
                get(&f.memory, now, |m| mib(m.available)),
                get(&f.storage, now, |s| mib(s.available)),
            ],
        ),
        Category::HealthStatus => (
            taken(&[f.load.taken(), f.errors.taken()]),
            vec![
                get(&f.load, now, |l| whole(l.one)),
                get(&f.uptime, now, |s| whole(*s)),
                get(&f.errors, now, |e| whole(e.whole()?.errors)),
                get(&f.errors, now, |e| whole(e.whole()?.warnings)),
            ],
        ),
        Category::Utilization => (
            taken(&[f.cpu.taken(), f.disk.taken(), f.network.taken(), f.fabric.taken()]),
            vec![
                get(&f.cpu, now, |p| whole(*p)),
                f.memory_use(now).and_then(whole),
                get(&f.disk, now, |d| whole(d.percent)),
                f.busiest_link(now).and_then(whole),
            ],
        ),
        Category::Gpu => (
            taken(&[f.gpus.taken()]),
            vec![
                // Where none was seen since the start, that is no news; one that is lost is told by its finding.
                get(&f.gpus, now, |r| {
                    whole(u64::try_from(r.gpus.len()).ok()?).filter(|_| f.had_gpus)
                }),
                get(&f.gpus, now, |r| r.utilization().and_then(whole)),
                get(&f.gpus, now, |r| r.memory_utilization().and_then(whole)),
                get(&f.gpus, now, |r| r.temperature().map(i64::from)),
            ],
        ),
        Category::Latency => (
            taken(&[f.peers.taken()]),
            vec![
                get(&f.peers, now, |p| whole(u64::try_from(p.len()).ok()?)),
                get(&f.peers, now, |p| average(p).and_then(whole)),
                get(&f.peers, now, |p| {
                    let lost: u64 = p.iter().map(|m| u64::from(m.loss_percent)).sum();
                    lost.checked_div(u64::try_from(p.len()).ok()?).and_then(whole)
                }),
            ],
        ),
        Category::JobCounts => {
            let (mut figures, jobs) = (Vec::with_capacity(4), f.jobs.fresh(now));
            let said = match jobs {
                Some(Answer::Said(j)) => Some(j),
                _ => None,
            };
            figures.push(said.and_then(|j| whole(u64::try_from(j.active.len()).ok()?)));
            figures.push(said.and_then(|j| j.pending.and_then(whole)));
            figures.push(said.and_then(|j| whole(j.ended?.completed)));
            figures.push(said.and_then(|j| whole(j.ended?.failed)));
            (taken(&[f.jobs.taken()]), figures)
        }
        Category::Temperature => (
            taken(&[f.temperature.taken(), f.power.taken()]),
            vec![
                get(&f.temperature, now, |c| Some(i64::from(*c))),
                get(&f.power, now, |domains| {
                    let all: Option<u64> = (!domains.is_empty())
                        .then(|| domains.iter().map(|d| d.milliwatts).fold(0, u64::saturating_add));
                    all.and_then(whole)
                }),
            ],
        ),
    };
    Values { taken, figures }
}

fn get<T>(figure: &Figure<T>, now: Instant, number: impl FnOnce(&T) -> Option<i64>) -> Option<i64> {
    figure.fresh(now).and_then(number)
}

fn whole(n: impl Into<u64>) -> Option<i64> {
    i64::try_from(n.into()).ok()
}

fn mib(bytes: u64) -> Option<i64> {
    whole(bytes >> 20)
}
