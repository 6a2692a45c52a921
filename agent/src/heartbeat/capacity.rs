//! Capacity by protocol decisions 21 and 24: totals rounded and at least 1, available floored, allocated never above
//! total − available, what is unknown absent.

use std::time::Instant;

use hpc_schema::heartbeat::Capacity;

use crate::config::Reserve;
use crate::sample::Figures;

const GIB: u64 = 1 << 30;

/// What our own tasks hold on this node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Cores.
    pub cores: u32,
    /// Memory in GiB.
    pub memory_gb: u32,
}

/// Capacity without a batch system: available = total − allocated − reserve, memory never above what the kernel calls
/// available. None while cores or memory are unknown: a heartbeat without them would say nothing.
#[must_use]
pub fn capacity(figures: &Figures, held: Held, reserve: Reserve, now: Instant) -> Option<Capacity> {
    let cores_total = (*figures.cores.fresh(now)?).max(1);
    let memory = figures.memory.fresh(now)?;
    let memory_total = rounded(memory.total).max(1);
    let cores_allocated = held.cores.min(cores_total);
    let cores_available = cores_total
        .saturating_sub(cores_allocated)
        .saturating_sub(reserve.cpu_cores);
    let memory_free = memory_total
        .saturating_sub(held.memory_gb)
        .saturating_sub(reserve.memory_gb);
    let memory_available = floored(memory.available).min(memory_free);
    let storage = figures.storage.fresh(now).map(|s| {
        let total = rounded(s.total).max(1);
        let available = floored(s.available).min(total);
        (
            total,
            available,
            floored(s.used).min(total.saturating_sub(available)),
        )
    });
    // A GPU whose driver does not answer is unknown, not absent; none on the bus is none.
    let gpus = figures.pci_gpus.fresh(now).filter(|n| **n == 0).map(|_| 0u32);
    Some(Capacity {
        cpu_cores_total: cores_total,
        cpu_cores_available: cores_available,
        cpu_cores_allocated: Some(cores_allocated),
        memory_gb_total: memory_total,
        memory_gb_available: memory_available,
        memory_gb_allocated: Some(held.memory_gb.min(memory_total.saturating_sub(memory_available))),
        gpus_total: gpus,
        gpus_available: gpus,
        gpus_allocated: gpus,
        gpu_type: None,
        storage_gb_total: storage.map(|s| s.0),
        storage_gb_available: storage.map(|s| s.1),
        storage_gb_allocated: storage.map(|s| s.2),
    })
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

    fn figures(cores: u32, total: u64, available: u64, now: Instant) -> Figures {
        let mut f = Figures::default();
        f.cores.set(Some(cores), now);
        f.memory.set(Some(Memory { total, available }), now);
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
        f.pci_gpus.set(Some(0), now);
        let c = capacity(
            &f,
            Held {
                cores: 4,
                memory_gb: 2,
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
        f.pci_gpus.set(Some(3), now);
        let c = capacity(&f, Held::default(), Reserve::default(), now).unwrap();
        assert_eq!((c.gpus_total, c.storage_gb_total), (None, None));
        f.cores.set(None, now);
        assert_eq!(capacity(&f, Held::default(), Reserve::default(), now), None);
        assert_eq!(
            capacity(&Figures::default(), Held::default(), Reserve::default(), now),
            None
        );
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
                Held { cores: held.0, memory_gb: held.1 },
                Reserve { cpu_cores: reserve.0, memory_gb: reserve.1 },
                now,
            ).unwrap();
            prop_assert!(c.check().is_ok(), "{c:?}");
        }
    }
}
