//! Capacity by protocol decisions 21 and 24: totals rounded and at least 1, available floored, allocated never above
//! total − available, what is unknown absent.

use std::time::Instant;

use hpc_schema::heartbeat::{Capacity, Label};

use crate::config::Reserve;
use crate::probe::gpu::GpuReport;
use crate::probe::pci::Gpus;
use crate::probe::slurm::{Answer, SlurmNode};
use crate::sample::Figures;

const GIB: u64 = 1 << 30;
/// Slurm's `RealMemory` where a site has not set it: then it counts no memory.
const UNTOLD_MIB: u64 = 1;

/// What our own tasks hold on this node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Cores.
    pub cores: u32,
    /// Memory in GiB.
    pub memory_gb: u32,
    /// GPUs.
    pub gpus: u32,
}

/// What the batch system says of this node's allocations.
enum Batch<'a> {
    /// There is none: what our tasks hold is all there is.
    None,
    /// There is one that does not answer: nothing is known to be free, and it counts this many cores if it has said so before.
    Silent(Option<u32>),
    /// This.
    Said(&'a SlurmNode),
}

/// Total, available, allocated.
type Figures3 = (u32, u32, Option<u32>);

/// `CPUTot` as Slurm said it last: `before`, until it says something, or is not here.
#[must_use]
pub fn slurm_cpus(figures: &Figures, before: Option<u32>) -> Option<u32> {
    match figures.slurm.last() {
        Some(Answer::Said(node)) => Some(node.cpus),
        Some(Answer::NotHere) => None,
        Some(Answer::Silent) | None => before,
    }
}

/// Capacity: available = total − allocated − reserve, memory never above what the kernel calls available, nothing above what
/// the batch system has of it. Its total of cores stands while it is silent (`cpus`, as by [`slurm_cpus`]): the same machine.
/// None while cores or memory are unknown: a heartbeat without them would say nothing.
#[must_use]
pub fn capacity(
    figures: &Figures,
    held: Held,
    reserve: Reserve,
    cpus: Option<u32>,
    now: Instant,
) -> Option<Capacity> {
    let batch = match figures.slurm.fresh(now) {
        Some(Answer::NotHere) => Batch::None,
        // Not asked yet, or asked in vain for too long.
        None | Some(Answer::Silent) => Batch::Silent(slurm_cpus(figures, cpus)),
        Some(Answer::Said(node)) => Batch::Said(node),
    };
    let online = (*figures.cores.fresh(now)?).max(1);
    let memory = figures.memory.fresh(now)?;
    let cores = cores(online, &batch, held, reserve);
    let memory = self::memory(
        rounded(memory.total).max(1),
        floored(memory.available),
        &batch,
        held,
        reserve,
    );
    let gpus = gpus(figures, &batch, held, now);
    let storage = figures.storage.fresh(now).map(|s| {
        let total = rounded(s.total).max(1);
        let available = floored(s.available).min(total);
        (
            total,
            available,
            floored(s.used).min(total.saturating_sub(available)),
        )
    });
    let name = figures.gpus.fresh(now).and_then(|r| r.name());
    Some(Capacity {
        cpu_cores_total: cores.0,
        cpu_cores_available: cores.1,
        cpu_cores_allocated: cores.2,
        memory_gb_total: memory.0,
        memory_gb_available: memory.1,
        memory_gb_allocated: memory.2,
        gpus_total: gpus.map(|g| g.0),
        gpus_available: gpus.map(|g| g.1),
        gpus_allocated: gpus.and_then(|g| g.2),
        gpu_type: name.and_then(Label::lossy),
        storage_gb_total: storage.map(|s| s.0),
        storage_gb_available: storage.map(|s| s.1),
        storage_gb_allocated: storage.map(|s| s.2),
    })
}

fn cores(online: u32, batch: &Batch<'_>, held: Held, reserve: Reserve) -> Figures3 {
    let (total, usable, allocated) = match batch {
        Batch::None => (online, online, held.cores),
        Batch::Silent(cpus) => return (cpus.unwrap_or(online).max(1), 0, None),
        Batch::Said(n) => (
            n.cpus.max(1),
            n.cpus_usable,
            n.cpus_allocated.saturating_add(held.cores),
        ),
    };
    let allocated = allocated.min(total);
    let available = usable
        .min(total)
        .saturating_sub(allocated)
        .saturating_sub(reserve.cpu_cores);
    (total, available, Some(allocated))
}

fn memory(total: u32, free: u32, batch: &Batch<'_>, held: Held, reserve: Reserve) -> Figures3 {
    let gib = |mib: u64| u32::try_from(mib).unwrap_or(u32::MAX);
    let (usable, allocated) = match batch {
        Batch::None => (total, held.memory_gb),
        Batch::Silent(_) => return (total, 0, None),
        // Rounded up: what is given away in part is not free. Nor is what Slurm gives nobody.
        Batch::Said(n) => {
            let usable = match n.memory_mib {
                UNTOLD_MIB => total,
                mib => total.min(gib(mib / 1024)),
            };
            let allocated = gib(n.memory_allocated_mib.div_ceil(1024));
            (usable, allocated.saturating_add(held.memory_gb))
        }
    };
    let left = usable.saturating_sub(allocated).saturating_sub(reserve.memory_gb);
    let available = free.min(left);
    (
        total,
        available,
        Some(allocated.min(total.saturating_sub(available))),
    )
}

/// A GPU whose driver does not answer is unknown, not absent; none on the bus is none, unless there were some. A lost
/// one counts in the total and is not available, nor is one of which nothing is told; one set aside for guests is
/// available until a guest has it. Where the batch system knows of no GPUs, nobody has counted which are allocated, and
/// those are available that are idle.
fn gpus(figures: &Figures, batch: &Batch<'_>, held: Held, now: Instant) -> Option<Figures3> {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let report = figures.gpus.fresh(now);
    let bus = figures.pci_gpus.fresh(now).copied();
    let passed = bus.map_or(0, |b| u32::from(b.passed));
    let (driven, working) = match (report, bus.map(Gpus::driven)) {
        (Some(r), on_bus) if !r.gpus.is_empty() => (
            count(r.gpus.len()).max(on_bus.map_or(0, u32::from)),
            count(r.working().count()),
        ),
        (report, Some(0)) if report.is_some() || !figures.had_gpus => (0, 0),
        _ => return None,
    };
    let (total, working) = (driven.saturating_add(passed), working.saturating_add(passed));
    let (usable, allocated) = match batch {
        Batch::None => (total, held.gpus),
        Batch::Silent(_) => return Some((total, 0, None)),
        Batch::Said(n) => match n.gpus_allocated {
            // Those that Slurm has, and those set aside for guests: others it gives nobody.
            Some(allocated) => (
                n.gpus.map_or(total, |gres| gres.saturating_add(passed)),
                allocated.saturating_add(held.gpus),
            ),
            None if total == 0 => (0, 0),
            None => {
                let idle = report.map_or(0, |r| count(idle(r, n.cpus_allocated > 0)));
                let available = idle.saturating_add(passed).saturating_sub(held.gpus);
                return Some((total, available, None));
            }
        },
    };
    let allocated = allocated.min(total);
    let untold = report.map_or(0, |r| r.gpus.iter().filter(|g| g.refused.is_some()).count());
    // Whether something lies on those of which nothing is told is not known either: it counts as if nothing did.
    let usable = usable.min(total.saturating_sub(count(untold)));
    let available = working.min(usable.saturating_sub(allocated));
    Some((total, available, Some(allocated)))
}

/// How many nobody computes on. Of one that does not tell it is known only while there is no job at all.
fn idle(report: &GpuReport, jobs: bool) -> usize {
    let is_idle = |processes: Option<u32>| processes.map_or(!jobs, |n| n == 0);
    report.working().filter(|g| is_idle(g.processes)).count()
}

fn floored(bytes: u64) -> u32 {
    u32::try_from(bytes / GIB).unwrap_or(u32::MAX)
}

fn rounded(bytes: u64) -> u32 {
    floored(bytes.saturating_add(GIB / 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::probe::memory::Memory;
    use crate::probe::storage::Storage;
    use crate::sample::Reading;

    /// Where nothing was heard of Slurm before.
    fn capacity(figures: &Figures, held: Held, reserve: Reserve, now: Instant) -> Option<Capacity> {
        super::capacity(figures, held, reserve, None, now)
    }

    fn figures(cores: u32, total: u64, available: u64, now: Instant) -> Figures {
        let mut f = Figures::default();
        f.cores.set(Some(cores), now);
        f.memory.set(Some(Memory { total, available }), now);
        f.slurm.set(Some(Answer::NotHere), now);
        f
    }

    #[test]
    fn totals_are_rounded_available_is_floored_and_capped_by_the_kernel() {
        let now = Instant::now();
        // 23.52 GiB installed, 17.9 GiB available.
        let mut f = figures(64, 25_252_007_936, 19_220_000_000, now);
        f.storage.set(
            Some(Storage {
                total: 2000 * GIB,
                available: 1500 * GIB,
                used: 450 * GIB,
            }),
            now,
        );
        f.pci_gpus.set(Some(Gpus::default()), now);
        let c = capacity(
            &f,
            Held {
                cores: 4,
                memory_gb: 2,
                gpus: 0,
            },
            Reserve {
                cpu_cores: 2,
                memory_gb: 1,
            },
            now,
        )
        .unwrap();
        assert_eq!(
            (c.cpu_cores_total, c.cpu_cores_available, c.cpu_cores_allocated),
            (64, 58, Some(4))
        );
        assert_eq!(
            (c.memory_gb_total, c.memory_gb_available, c.memory_gb_allocated),
            (24, 17, Some(2))
        );
        assert_eq!(
            (c.storage_gb_total, c.storage_gb_available, c.storage_gb_allocated),
            (Some(2000), Some(1500), Some(450))
        );
        assert_eq!((c.gpus_total, c.gpus_available), (Some(0), Some(0)));
        c.check().unwrap();
    }

    #[test]
    fn the_unknown_is_absent_and_without_cores_or_memory_there_is_no_capacity() {
        let now = Instant::now();
        let mut f = figures(2, 8 * GIB, 4 * GIB, now);
        let three = Gpus {
            nvidia: 3,
            ..Gpus::default()
        };
        f.pci_gpus.set(Some(three), now);
        let c = capacity(&f, Held::default(), Reserve::default(), now).unwrap();
        assert_eq!((c.gpus_total, c.storage_gb_total), (None, None));
        f.cores.set(None, now);
        assert_eq!(capacity(&f, Held::default(), Reserve::default(), now), None);
        assert_eq!(
            capacity(&Figures::default(), Held::default(), Reserve::default(), now),
            None
        );
    }

    #[test]
    fn a_batch_system_that_was_not_asked_yet_or_hangs_leaves_nothing_known_to_be_free() {
        let now = Instant::now();
        let mut f = figures(64, 256 * GIB, 200 * GIB, now);
        f.slurm = Figures::default().slurm;
        let c = capacity(&f, Held::default(), Reserve::default(), now).unwrap();
        assert_eq!((c.cpu_cores_available, c.cpu_cores_allocated), (0, None));
        f.slurm.set(Some(Answer::Said(slurm())), now);
        let c = capacity(&f, Held::default(), Reserve::default(), now).unwrap();
        assert!(c.cpu_cores_available > 0);
        let later = now + std::time::Duration::from_secs(3600);
        f.cores.set(Some(64), later);
        let memory = *f.memory.last().unwrap();
        f.memory.set(Some(memory), later);
        let c = capacity(&f, Held::default(), Reserve::default(), later).unwrap();
        assert_eq!((c.cpu_cores_available, c.memory_gb_available), (0, 0));
    }

    #[test]
    fn a_gpu_that_its_driver_misses_is_in_the_total_and_one_set_aside_for_guests_is_available() {
        let now = Instant::now();
        let mut f = figures(64, 256 * GIB, 200 * GIB, now);
        let report = |n| GpuReport {
            driver: None,
            gpus: vec![crate::probe::gpu::Gpu::default(); n],
        };
        let bus = Gpus {
            nvidia: 8,
            amd: 0,
            passed: 2,
            lost: 0,
        };
        f.pci_gpus.set(Some(bus), now);
        Reading::Gpus(Some(report(7))).apply(&mut f, now);
        let held = Held {
            gpus: 1,
            ..Held::default()
        };
        let c = capacity(&f, held, Reserve::default(), now).unwrap();
        assert_eq!(
            (c.gpus_total, c.gpus_available, c.gpus_allocated),
            (Some(10), Some(9), Some(1))
        );
        // GPUs that are on no PCI bus and whose driver went silent are unknown, not gone.
        f.pci_gpus.set(Some(Gpus::default()), now);
        let later = now + std::time::Duration::from_secs(3600);
        for at in [now, later] {
            if at == later {
                Reading::Gpus(None).apply(&mut f, at);
            }
            f.cores.set(Some(64), at);
            let memory = *f.memory.last().unwrap();
            f.memory.set(Some(memory), at);
            f.pci_gpus.set(Some(Gpus::default()), at);
            let c = capacity(&f, Held::default(), Reserve::default(), at).unwrap();
            assert_eq!(c.gpus_total, (at == now).then_some(7));
        }
    }

    #[test]
    fn a_gpu_of_which_nothing_is_told_is_in_the_total_and_hides_none_of_another_maker() {
        let now = Instant::now();
        let mut f = figures(64, 256 * GIB, 200 * GIB, now);
        let amd = || crate::probe::gpu::Gpu {
            name: Some("AMD Instinct MI250X".into()),
            ..Default::default()
        };
        let nvidia = crate::probe::gpu::Gpu {
            refused: Some("install NVIDIA's driver".into()),
            ..Default::default()
        };
        let report = GpuReport {
            driver: None,
            gpus: vec![nvidia, amd(), amd()],
        };
        f.gpus.set(Some(report), now);
        let bus = Gpus {
            nvidia: 1,
            amd: 2,
            ..Gpus::default()
        };
        f.pci_gpus.set(Some(bus), now);
        for (gpus, available) in [(0, 2), (1, 1), (2, 0), (3, 0)] {
            let held = Held {
                gpus,
                ..Held::default()
            };
            let c = capacity(&f, held, Reserve::default(), now).unwrap();
            assert_eq!(
                (c.gpus_total, c.gpus_available, c.gpus_allocated),
                (Some(3), Some(available), Some(gpus))
            );
            assert_eq!(c.gpu_type.as_ref().unwrap().as_str(), "AMD Instinct MI250X");
            c.check().unwrap();
        }
    }

    fn slurm() -> SlurmNode {
        SlurmNode {
            state: hpc_schema::heartbeat::SlurmState::Mixed,
            state_text: "MIXED".into(),
            reason: None,
            cpus: 64,
            cpus_allocated: 32,
            cpus_usable: 62,
            memory_mib: 250_000,
            memory_allocated_mib: 100_500,
            gpus: Some(4),
            gpus_allocated: Some(2),
            version: None,
        }
    }

    #[test]
    fn with_slurm_its_allocations_count_and_a_silent_one_leaves_nothing_known_to_be_free() {
        let now = Instant::now();
        let mut f = figures(128, 256 * GIB, 200 * GIB, now);
        f.slurm.set(Some(Answer::Said(slurm())), now);
        let gpu = |lost| crate::probe::gpu::Gpu {
            name: Some("NVIDIA A100 80GB".into()),
            lost,
            ..Default::default()
        };
        let report = GpuReport {
            driver: None,
            gpus: vec![gpu(false), gpu(false), gpu(true), gpu(false)],
        };
        f.gpus.set(Some(report), now);
        let c = capacity(
            &f,
            Held::default(),
            Reserve {
                cpu_cores: 2,
                memory_gb: 0,
            },
            now,
        )
        .unwrap();
        assert_eq!(
            (c.cpu_cores_total, c.cpu_cores_available, c.cpu_cores_allocated),
            (64, 28, Some(32))
        );
        assert_eq!(
            (c.memory_gb_total, c.memory_gb_available, c.memory_gb_allocated),
            (256, 145, Some(99)),
            "244 GiB are Slurm's"
        );
        assert_eq!(
            (c.gpus_total, c.gpus_available, c.gpus_allocated),
            (Some(4), Some(2), Some(2))
        );
        assert_eq!(c.gpu_type.as_ref().unwrap().as_str(), "NVIDIA A100 80GB");
        c.check().unwrap();
        f.slurm.set(Some(Answer::Silent), now);
        let c = capacity(&f, Held::default(), Reserve::default(), now).unwrap();
        assert_eq!(
            (c.cpu_cores_total, c.cpu_cores_available, c.cpu_cores_allocated),
            (128, 0, None)
        );
        assert_eq!((c.memory_gb_available, c.gpus_available), (0, Some(0)));
        c.check().unwrap();
    }

    #[test]
    fn slurms_total_of_cores_stands_while_it_is_silent_or_not_asked_yet() {
        let now = Instant::now();
        let later = now + std::time::Duration::from_secs(3600);
        let with = |answer: Option<Answer<SlurmNode>>, asked: Instant, cpus| {
            let mut f = figures(128, 256 * GIB, 200 * GIB, later);
            f.slurm = Figures::default().slurm;
            if let Some(answer) = answer {
                f.slurm.set(Some(answer), asked);
            }
            let c = super::capacity(&f, Held::default(), Reserve::default(), cpus, later).unwrap();
            c.check().unwrap();
            (c.cpu_cores_total, c.cpu_cores_allocated, slurm_cpus(&f, cpus))
        };
        let before = Some(64);
        assert_eq!(
            with(None, later, before),
            (64, None, before),
            "the first heartbeat"
        );
        assert_eq!(with(Some(Answer::Silent), later, before), (64, None, before));
        assert_eq!(
            with(Some(Answer::Said(slurm())), now, None),
            (64, None, before),
            "it hangs"
        );
        assert_eq!(
            with(Some(Answer::Said(slurm())), later, Some(32)),
            (64, Some(32), before)
        );
        // Where there is none, or none has said anything yet, the kernel's count is all there is.
        assert_eq!(with(Some(Answer::NotHere), later, before), (128, Some(0), None));
        assert_eq!(with(None, later, None), (128, None, None));
    }

    #[test]
    fn what_slurm_gives_nobody_is_not_available() {
        let now = Instant::now();
        let with = |node: SlurmNode, passed: u16| {
            let mut f = figures(64, 256 * GIB, 250 * GIB, now);
            f.slurm.set(Some(Answer::Said(node)), now);
            let report = GpuReport {
                driver: None,
                gpus: vec![crate::probe::gpu::Gpu::default(); 8],
            };
            f.gpus.set(Some(report), now);
            let bus = Gpus {
                nvidia: 8,
                passed,
                ..Gpus::default()
            };
            f.pci_gpus.set(Some(bus), now);
            let c = capacity(&f, Held::default(), Reserve::default(), now).unwrap();
            c.check().unwrap();
            (c.memory_gb_available, c.gpus_available)
        };
        let idle = SlurmNode {
            memory_mib: 200_000,
            memory_allocated_mib: 0,
            gpus_allocated: Some(0),
            ..slurm()
        };
        assert_eq!(with(idle.clone(), 0), (195, Some(4)), "four of eight are Slurm's");
        assert_eq!(with(idle.clone(), 2), (195, Some(6)), "and two are for guests");
        // A site that lets Slurm count no memory.
        let untold = SlurmNode {
            memory_mib: 1,
            ..idle
        };
        assert_eq!(with(untold, 0).0, 250);
    }

    #[test]
    fn gpus_that_slurm_does_not_count_are_available_only_where_they_are_known_to_be_idle() {
        let now = Instant::now();
        let gpu = |processes| crate::probe::gpu::Gpu {
            processes,
            ..Default::default()
        };
        let with = |gpus: Vec<crate::probe::gpu::Gpu>, passed, cpus_allocated, held| {
            let mut f = figures(64, 256 * GIB, 200 * GIB, now);
            let node = SlurmNode {
                cpus_allocated,
                gpus: None,
                gpus_allocated: None,
                ..slurm()
            };
            f.slurm.set(Some(Answer::Said(node)), now);
            let bus = Gpus {
                nvidia: u16::try_from(gpus.len()).unwrap(),
                passed,
                ..Gpus::default()
            };
            f.pci_gpus.set(Some(bus), now);
            Reading::Gpus(Some(GpuReport { driver: None, gpus })).apply(&mut f, now);
            let held = Held {
                gpus: held,
                ..Held::default()
            };
            let c = capacity(&f, held, Reserve::default(), now).unwrap();
            c.check().unwrap();
            (c.gpus_total, c.gpus_available, c.gpus_allocated)
        };
        let told = || vec![gpu(Some(0)), gpu(Some(3)), gpu(Some(0)), gpu(None)];
        // With a job, one that does not tell may be its.
        assert_eq!(with(told(), 0, 32, 0), (Some(4), Some(2), None));
        assert_eq!(with(told(), 0, 0, 0), (Some(4), Some(3), None));
        let silent = || vec![gpu(None); 2];
        assert_eq!(with(silent(), 0, 1, 0), (Some(2), Some(0), None));
        assert_eq!(with(silent(), 0, 0, 0), (Some(2), Some(2), None));
        // Set aside for guests: Slurm never gives them away.
        assert_eq!(with(silent(), 2, 1, 1), (Some(4), Some(1), None));
        let mut lost = told();
        lost[0].lost = true;
        assert_eq!(with(lost, 0, 32, 0), (Some(4), Some(1), None));
        // Of none, none is allocated.
        assert_eq!(with(Vec::new(), 0, 32, 0), (Some(0), Some(0), Some(0)));
    }

    proptest! {
        #[test]
        fn no_figures_break_the_rules_of_the_protocol(
            cores in 1u32..100_000, total: u64, available: u64, held: (u32, u32), reserve: (u32, u32),
            st: u64, sa: u64, su: u64,
        ) {
            // The protocol's counts are 31 bits wide.
            let (total, available) = (total >> 3, available >> 3);
            let now = Instant::now();
            let mut f = figures(cores, total, available, now);
            f.storage.set(Some(Storage { total: st, available: sa, used: su }), now);
            let c = capacity(
                &f,
                Held { cores: held.0, memory_gb: held.1, gpus: held.0 },
                Reserve { cpu_cores: reserve.0, memory_gb: reserve.1 },
                now,
            ).unwrap();
            prop_assert!(c.check().is_ok(), "{c:?}");
        }
    }
}
