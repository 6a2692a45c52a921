//! The hot record: what changes with every report, in 22 bytes.

use super::{HealthStatus, NodeState};
use crate::registry::JobsStatus;
use crate::report::{Body, from_u24, to_u24};
use crate::time::UnixSeconds;

/// Bytes of a hot record.
pub const HOT_LEN: usize = 22;

const STATE_MASK: u8 = 0b0000_0111;
const STATUS_SHIFT: u32 = 3;
const DRAIN: u8 = 0b0100_0000;
const HAS_JOBS: u8 = 0b1000_0000;

/// One slot of a hot page.
///
/// Layout, big endian: sequence u32 ‖ last heartbeat u32 ‖ flags u8 (bits 0–2 state, 0 = empty slot; bits 3–5
/// health status, 0 = none reported; bit 6 provider's drain; bit 7 jobs run) ‖ cores u16 ‖ memory GiB u24 ‖ GPUs u8 ‖
/// storage GiB u24 ‖ latency µs u24 ‖ measurements u8. While OFFLINE the last four bytes hold the time since when
/// OFFLINE is on record, while DEREGISTERED the time of the deregistration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotRecord {
    /// Last accepted sequence in this epoch; 0 before the first.
    pub sequence: u32,
    /// UNIX seconds of the last heartbeat that counted; 0 before the first. Read it through
    /// [`HotRecord::last_seen`].
    pub last_heartbeat: u32,
    /// Recorded state.
    pub state: NodeState,
    /// Last reported status; `None` before the first report.
    pub status: Option<HealthStatus>,
    /// Whether a provider's drain is in force.
    pub drain: bool,
    /// Whether jobs run or may run (nothing is known of them), as last reported.
    pub has_jobs: bool,
    /// Available cores.
    pub cores: u16,
    /// Available memory, GiB.
    pub memory_gb: u32,
    /// Available GPUs.
    pub gpus: u8,
    /// Available storage, GiB.
    pub storage_gb: u32,
    /// Mean latency to probed peers, µs; 0 while OFFLINE or DEREGISTERED.
    pub latency_us: u32,
    /// Measurements behind the mean; 0 while OFFLINE or DEREGISTERED.
    pub measurements: u8,
    /// OFFLINE: recorded since; DEREGISTERED: recorded at; else 0.
    pub since: u32,
}

impl HotRecord {
    /// A freshly registered node.
    #[must_use]
    pub fn pending() -> Self {
        Self {
            sequence: 0,
            last_heartbeat: 0,
            state: NodeState::Pending,
            status: None,
            drain: false,
            has_jobs: false,
            cores: 0,
            memory_gb: 0,
            gpus: 0,
            storage_gb: 0,
            latency_us: 0,
            measurements: 0,
            since: 0,
        }
    }

    /// Whether `since` takes the place of latency and measurements.
    fn holds_since(state: NodeState) -> bool {
        matches!(state, NodeState::Offline | NodeState::Deregistered)
    }

    /// The 22 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HOT_LEN] {
        let flags = self.state.number()
            | (self.status.map_or(0, HealthStatus::bits) << STATUS_SHIFT)
            | if self.drain { DRAIN } else { 0 }
            | if self.has_jobs { HAS_JOBS } else { 0 };
        let [q0, q1, q2, q3] = self.sequence.to_be_bytes();
        let [h0, h1, h2, h3] = self.last_heartbeat.to_be_bytes();
        let [c0, c1] = self.cores.to_be_bytes();
        let [m0, m1, m2] = to_u24(self.memory_gb);
        let [s0, s1, s2] = to_u24(self.storage_gb);
        let [t0, t1, t2, t3] = if Self::holds_since(self.state) {
            self.since.to_be_bytes()
        } else {
            let [l0, l1, l2] = to_u24(self.latency_us);
            [l0, l1, l2, self.measurements]
        };
        let g = self.gpus;
        [
            q0, q1, q2, q3, h0, h1, h2, h3, flags, c0, c1, m0, m1, m2, g, s0, s1, s2, t0, t1, t2, t3,
        ]
    }

    /// Reads a slot; `None` for an empty one (state bits 0).
    #[must_use]
    pub fn decode(bytes: &[u8; HOT_LEN]) -> Option<Self> {
        let [
            q0,
            q1,
            q2,
            q3,
            h0,
            h1,
            h2,
            h3,
            flags,
            c0,
            c1,
            m0,
            m1,
            m2,
            g,
            s0,
            s1,
            s2,
            t0,
            t1,
            t2,
            t3,
        ] = *bytes;
        let state = NodeState::from_number(flags & STATE_MASK)?;
        let tail = u32::from_be_bytes([t0, t1, t2, t3]);
        let (since, latency_us, measurements) = if Self::holds_since(state) {
            (tail, 0, 0)
        } else {
            (0, from_u24([t0, t1, t2]), t3)
        };
        Some(Self {
            sequence: u32::from_be_bytes([q0, q1, q2, q3]),
            last_heartbeat: u32::from_be_bytes([h0, h1, h2, h3]),
            state,
            status: HealthStatus::from_bits((flags >> STATUS_SHIFT) & STATE_MASK),
            drain: flags & DRAIN != 0,
            has_jobs: flags & HAS_JOBS != 0,
            cores: u16::from_be_bytes([c0, c1]),
            memory_gb: from_u24([m0, m1, m2]),
            gpus: g,
            storage_gb: from_u24([s0, s1, s2]),
            latency_us,
            measurements,
            since,
        })
    }

    /// When the node was last seen; `None` before its first heartbeat.
    #[must_use]
    pub fn last_seen(&self) -> Option<UnixSeconds> {
        (self.last_heartbeat > 0).then_some(UnixSeconds(u64::from(self.last_heartbeat)))
    }

    /// Seconds of silence at `now`.
    #[must_use]
    pub fn silence(&self, now: UnixSeconds) -> u64 {
        now.since(UnixSeconds(u64::from(self.last_heartbeat)))
    }

    /// Since when OFFLINE is on record, while it is.
    #[must_use]
    pub fn offline_since(&self) -> Option<UnixSeconds> {
        (self.state == NodeState::Offline).then_some(UnixSeconds(u64::from(self.since)))
    }

    /// When DEREGISTERED was recorded, while it is.
    #[must_use]
    pub fn deregistered_at(&self) -> Option<UnixSeconds> {
        (self.state == NodeState::Deregistered).then_some(UnixSeconds(u64::from(self.since)))
    }

    /// ACTIVE, in an active cluster, healthy or degraded (protocol decision 19). Meant for effective records.
    #[must_use]
    pub fn is_schedulable(&self, cluster_active: bool) -> bool {
        cluster_active
            && self.state == NodeState::Active
            && self.status.is_some_and(HealthStatus::is_schedulable)
    }

    /// What became of the node's jobs.
    #[must_use]
    pub fn jobs_status(&self) -> JobsStatus {
        match self.state {
            NodeState::Offline if self.has_jobs => JobsStatus::AtRisk,
            NodeState::Deregistered if self.has_jobs => JobsStatus::Failed,
            _ => JobsStatus::Normal,
        }
    }

    /// Takes over the figures of a report; state and times stay.
    pub(super) fn take_figures(&mut self, sequence: u32, body: &Body) {
        self.sequence = sequence;
        self.status = Some(body.status);
        self.has_jobs = body.has_jobs;
        self.cores = body.cores_available;
        self.memory_gb = body.memory_gb_available;
        self.gpus = body.gpus_available;
        self.storage_gb = body.storage_gb_available;
        if !Self::holds_since(self.state) {
            self.latency_us = body.avg_cluster_latency_us;
            self.measurements = body.measurement_count;
        }
    }

    /// Changes the state; `since` and the latency share their bytes, so one goes when the other comes.
    pub(super) fn enter(&mut self, state: NodeState, now: UnixSeconds) {
        self.state = state;
        if Self::holds_since(state) {
            self.since = u32::try_from(now.0).unwrap_or(u32::MAX);
            (self.latency_us, self.measurements) = (0, 0);
        } else {
            self.since = 0;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_record() -> impl Strategy<Value = HotRecord> {
        any::<[u8; HOT_LEN]>().prop_filter_map("an empty slot or an unknown status", |mut bytes| {
            if (bytes[8] >> STATUS_SHIFT) & STATE_MASK > 5 {
                bytes[8] &= !0b0011_1000;
            }
            HotRecord::decode(&bytes)
        })
    }

    proptest! {
        #[test]
        fn records_survive_the_round_trip(record in any_record()) {
            prop_assert_eq!(HotRecord::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn zeros_are_an_empty_slot() {
        assert_eq!(HotRecord::decode(&[0; HOT_LEN]), None);
    }

    #[test]
    fn offline_since_takes_the_place_of_the_latency() {
        let mut r = HotRecord {
            latency_us: 0x01_0203,
            measurements: 4,
            ..HotRecord::pending()
        };
        assert_eq!(r.encode()[18..], [1, 2, 3, 4]);
        r.enter(NodeState::Offline, UnixSeconds(0x0a0b_0c0d));
        assert_eq!(r.encode()[18..], [0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!((r.latency_us, r.measurements), (0, 0));
        assert_eq!(r.offline_since(), Some(UnixSeconds(0x0a0b_0c0d)));
    }
}
