use std::collections::BTreeMap;

use super::varint;
use crate::node::{HealthStatus, HotRecord, NodeState};
use crate::registry::{AggregateView, GpuCount, StateCounts};

const STATES: usize = NodeState::ALL.len();

/// Sums over a cluster's nodes, by recorded state.
///
/// Schedulable figures are kept as if the cluster were active, so that activating and deactivating it touches no
/// page; [`Aggregate::view`] shows them as 0 while it is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// Nodes by state, in the order of [`NodeState::ALL`].
    counts: [u64; STATES],
    schedulable: u64,
    degraded: u64,
    cores: u64,
    memory_gb: u64,
    storage_gb: u64,
    /// Σ mean latency (µs) × measurements.
    latency_sum: u64,
    /// Σ measurements.
    latency_weight: u64,
    /// Available GPUs by type index, 0 = type unknown; no zero entries.
    gpus: BTreeMap<u8, u64>,
}

/// Microseconds to milliseconds, half up (protocol decision 21).
#[must_use]
pub fn micros_to_millis(micros: u64) -> u64 {
    micros.saturating_add(500) / 1_000
}

fn round_half_up(sum: u64, by: u64) -> u64 {
    let doubled = u128::from(by) * 2;
    (u128::from(sum) * 2 + u128::from(by))
        .checked_div(doubled)
        .map_or(0, |q| u64::try_from(q).unwrap_or(u64::MAX))
}

impl Aggregate {
    /// Adds a node.
    pub fn add(&mut self, record: &HotRecord, gpu_type: u8) {
        self.apply(record, gpu_type, u64::saturating_add);
    }

    /// Takes a node away that was added before with the same values.
    pub fn sub(&mut self, record: &HotRecord, gpu_type: u8) {
        self.apply(record, gpu_type, u64::saturating_sub);
    }

    fn apply(&mut self, record: &HotRecord, gpu_type: u8, op: impl Fn(u64, u64) -> u64) {
        let index = usize::from(record.state.number().saturating_sub(1));
        if let Some(count) = self.counts.get_mut(index) {
            *count = op(*count, 1);
        }
        if !record.is_schedulable(true) {
            return;
        }
        let weight = u64::from(record.measurements);
        let degraded = record.status == Some(HealthStatus::Degraded);
        for (sum, value) in [
            (&mut self.schedulable, 1),
            (&mut self.degraded, u64::from(degraded)),
            (&mut self.cores, u64::from(record.cores)),
            (&mut self.memory_gb, u64::from(record.memory_gb)),
            (&mut self.storage_gb, u64::from(record.storage_gb)),
            (&mut self.latency_sum, u64::from(record.latency_us) * weight),
            (&mut self.latency_weight, weight),
        ] {
            *sum = op(*sum, value);
        }
        if record.gpus > 0 {
            let gpus = self.gpus.entry(gpu_type).or_default();
            *gpus = op(*gpus, u64::from(record.gpus));
            if *gpus == 0 {
                self.gpus.remove(&gpu_type);
            }
        }
    }

    /// Appends the stored form, all LEB128: counts of the seven states, schedulable, degraded, cores, memory, storage,
    /// latency sum, latency weight, number of GPU types, then index and count of each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for count in self.counts {
            varint::push(out, count);
        }
        for sum in [
            self.schedulable,
            self.degraded,
            self.cores,
            self.memory_gb,
            self.storage_gb,
            self.latency_sum,
            self.latency_weight,
            u64::try_from(self.gpus.len()).unwrap_or(0),
        ] {
            varint::push(out, sum);
        }
        for (index, count) in &self.gpus {
            varint::push(out, u64::from(*index));
            varint::push(out, *count);
        }
    }

    /// Reads the stored form; `None` if it is not one.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let mut counts = [0; STATES];
        for count in &mut counts {
            *count = varint::take(bytes)?;
        }
        let mut aggregate = Self {
            counts,
            schedulable: varint::take(bytes)?,
            degraded: varint::take(bytes)?,
            cores: varint::take(bytes)?,
            memory_gb: varint::take(bytes)?,
            storage_gb: varint::take(bytes)?,
            latency_sum: varint::take(bytes)?,
            latency_weight: varint::take(bytes)?,
            gpus: BTreeMap::new(),
        };
        for _ in 0..varint::take(bytes)? {
            let index = u8::try_from(varint::take(bytes)?).ok()?;
            aggregate.gpus.insert(index, varint::take(bytes)?);
        }
        bytes.is_empty().then_some(aggregate)
    }

    /// Nodes in this state.
    #[must_use]
    pub fn count(&self, state: NodeState) -> u64 {
        self.counts
            .get(usize::from(state.number().saturating_sub(1)))
            .copied()
            .unwrap_or(0)
    }

    /// All nodes but the deregistered ones.
    #[must_use]
    pub fn total_nodes(&self) -> u64 {
        NodeState::ALL
            .iter()
            .filter(|s| **s != NodeState::Deregistered)
            .map(|s| self.count(*s))
            .sum()
    }

    /// All nodes on record, the deregistered ones too.
    #[must_use]
    pub fn on_record(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Health of the cluster, 0 to 1,000,000: the mean over its nodes that are neither PENDING nor DEREGISTERED of
    /// 1,000,000 for a schedulable healthy node, 500,000 for a schedulable degraded one and 0 for every other;
    /// 0 without such nodes, rounded down.
    ///
    /// A node that takes no work is worth nothing to a buyer, however it feels; a degraded one is worth half, because
    /// it may fail under a job; a PENDING one has never been part of the promise.
    #[must_use]
    pub fn health_score(&self, cluster_active: bool) -> u32 {
        let promised = self.total_nodes().saturating_sub(self.count(NodeState::Pending));
        if !cluster_active {
            return 0;
        }
        let healthy = self.schedulable.saturating_sub(self.degraded);
        let points = u128::from(healthy) * 1_000_000 + u128::from(self.degraded) * 500_000;
        points
            .checked_div(u128::from(promised))
            .map_or(0, |s| u32::try_from(s.min(1_000_000)).unwrap_or(0))
    }

    /// The sums as answers show them; `gpu_types` names the indices from 1 on.
    #[must_use]
    pub fn view(&self, cluster_active: bool, gpu_types: &[String]) -> AggregateView {
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let count = |state| narrow(self.count(state));
        let shown = |n: u64| if cluster_active { n } else { 0 };
        let name = |index: &u8| {
            usize::from(*index)
                .checked_sub(1)
                .and_then(|i| gpu_types.get(i))
                .map_or("unknown", String::as_str)
        };
        let gpus_by_type: Vec<_> = self
            .gpus
            .iter()
            .filter(|_| cluster_active)
            .map(|(index, available)| GpuCount {
                gpu_type: name(index).to_owned(),
                available: *available,
            })
            .collect();
        AggregateView {
            total_nodes: narrow(self.total_nodes()),
            active_nodes: narrow(shown(self.schedulable)),
            states: StateCounts {
                pending: count(NodeState::Pending),
                active: count(NodeState::Active),
                stale: count(NodeState::Stale),
                draining: count(NodeState::Draining),
                drained: count(NodeState::Drained),
                offline: count(NodeState::Offline),
                deregistered: count(NodeState::Deregistered),
            },
            available_cpu_cores: shown(self.cores),
            available_memory_gb: shown(self.memory_gb),
            available_gpus: gpus_by_type.iter().map(|g| g.available).sum(),
            gpus_by_type,
            available_storage_gb: shown(self.storage_gb),
            avg_cluster_latency_ms: shown(round_half_up(
                self.latency_sum,
                self.latency_weight.saturating_mul(1_000),
            )),
            avg_cluster_latency_us: shown(round_half_up(self.latency_sum, self.latency_weight)),
            health_score: self.health_score(cluster_active),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(status: HealthStatus, state: NodeState) -> HotRecord {
        HotRecord {
            state,
            status: Some(status),
            cores: 10,
            memory_gb: 20,
            gpus: 2,
            storage_gb: 30,
            latency_us: 1_000,
            measurements: 1,
            ..HotRecord::pending()
        }
    }

    fn any_node() -> impl Strategy<Value = (HotRecord, u8)> {
        (
            prop::sample::select(&NodeState::ALL[..]),
            prop::option::of(prop::sample::select(&HealthStatus::ALL[..])),
            any::<(u16, u8, u8, u32)>(),
            0u8..4,
        )
            .prop_map(|(state, status, (cores, gpus, measurements, wide), gpu_type)| {
                let record = HotRecord {
                    state,
                    status,
                    cores,
                    gpus,
                    measurements,
                    memory_gb: wide >> 8,
                    storage_gb: wide & 0xff_ffff,
                    latency_us: wide >> 9,
                    ..HotRecord::pending()
                };
                (record, gpu_type)
            })
    }

    proptest! {
        #[test]
        fn adding_and_taking_away_equals_a_recount(
            history in prop::collection::vec((0usize..8, prop::option::of(any_node())), 0..80)
        ) {
            let mut slots: [Option<(HotRecord, u8)>; 8] = [None; 8];
            let mut sums = Aggregate::default();
            for (slot, node) in history {
                if let Some((old, gpu_type)) = slots[slot] {
                    sums.sub(&old, gpu_type);
                }
                if let Some((new, gpu_type)) = node {
                    sums.add(&new, gpu_type);
                }
                slots[slot] = node;
            }
            let mut recount = Aggregate::default();
            for (record, gpu_type) in slots.into_iter().flatten() {
                recount.add(&record, gpu_type);
            }
            prop_assert_eq!(&sums, &recount);
            let mut bytes = Vec::new();
            sums.encode(&mut bytes);
            prop_assert_eq!(Aggregate::decode(&bytes), Some(sums));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(a) = Aggregate::decode(&bytes) {
                let _view = a.view(true, &[]);
            }
        }
    }

    #[test]
    fn only_schedulable_nodes_give_resources() {
        let mut sums = Aggregate::default();
        sums.add(&node(HealthStatus::Healthy, NodeState::Active), 1);
        sums.add(&node(HealthStatus::Degraded, NodeState::Active), 0);
        sums.add(&node(HealthStatus::Unhealthy, NodeState::Active), 1);
        sums.add(&node(HealthStatus::Healthy, NodeState::Draining), 1);
        sums.add(&node(HealthStatus::Healthy, NodeState::Pending), 1);
        sums.add(&node(HealthStatus::Healthy, NodeState::Deregistered), 1);
        let view = sums.view(true, &["NVIDIA A100 80GB".to_owned()]);
        assert_eq!((view.total_nodes, view.active_nodes), (5, 2));
        assert_eq!(
            (
                view.available_cpu_cores,
                view.available_memory_gb,
                view.available_storage_gb
            ),
            (20, 40, 60)
        );
        assert_eq!(view.available_gpus, 4);
        let types: Vec<_> = view
            .gpus_by_type
            .iter()
            .map(|g| (g.gpu_type.as_str(), g.available))
            .collect();
        assert_eq!(types, [("unknown", 2), ("NVIDIA A100 80GB", 2)]);
        // Healthy 1, degraded ½, unhealthy and draining 0, over four.
        assert_eq!(view.health_score, 375_000);
        let inactive = sums.view(false, &[]);
        assert_eq!(
            (
                inactive.active_nodes,
                inactive.available_cpu_cores,
                inactive.health_score
            ),
            (0, 0, 0)
        );
        assert_eq!((inactive.total_nodes, inactive.states.active), (5, 3));
    }

    #[test]
    fn latencies_are_weighted_by_measurements_and_round_half_up() {
        let mut sums = Aggregate::default();
        sums.add(
            &HotRecord {
                latency_us: 1_000,
                measurements: 3,
                ..node(HealthStatus::Healthy, NodeState::Active)
            },
            0,
        );
        sums.add(
            &HotRecord {
                latency_us: 3_000,
                measurements: 1,
                ..node(HealthStatus::Healthy, NodeState::Active)
            },
            0,
        );
        let view = sums.view(true, &[]);
        assert_eq!(
            (view.avg_cluster_latency_us, view.avg_cluster_latency_ms),
            (1_500, 2)
        );
        assert_eq!(Aggregate::default().view(true, &[]).avg_cluster_latency_us, 0);
        assert_eq!(
            [499, 500, 999, 1_499, 1_500].map(micros_to_millis),
            [0, 1, 1, 1, 2]
        );
    }

    #[test]
    fn fifty_ordinary_nodes_fit_in_thirty_bytes() {
        let mut sums = Aggregate::default();
        for _ in 0..50 {
            sums.add(
                &HotRecord {
                    cores: 64,
                    memory_gb: 256,
                    storage_gb: 2_000,
                    ..node(HealthStatus::Healthy, NodeState::Active)
                },
                1,
            );
        }
        let mut bytes = Vec::new();
        sums.encode(&mut bytes);
        assert!(bytes.len() <= 30, "{}", bytes.len());
    }
}
