//! The 14 bytes of figures in every report.

use super::bytes::{Reader, U24_MAX, to_u24};
use crate::code::Code;
use crate::node::HealthStatus;

/// Bytes of a body.
pub const BODY_LEN: usize = 14;

/// Bit of the flags byte that says "a section follows" on the wire of a batch. Framing: never signed.
pub const SECTION_FOLLOWS: u8 = 0b0001_0000;

const STATUS_MASK: u8 = 0b0000_0111;
const HAS_JOBS: u8 = 0b0000_1000;
const RESERVED: u8 = 0b1110_0000;

/// Figures at full width, before they saturate into a [`Body`]. What is unknown is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Jobs, slices, VMs and containers that run on the node.
    pub running_count: u64,
    /// Cores free for new work.
    pub cores_available: u64,
    /// Memory free for new work, GiB.
    pub memory_gb_available: u64,
    /// GPUs free for new work.
    pub gpus_available: u64,
    /// Storage free for new work, GiB.
    pub storage_gb_available: u64,
    /// Mean latency to the probed peers, µs.
    pub avg_cluster_latency_us: u64,
    /// Measurements behind that mean: those with a round trip.
    pub measurement_count: u64,
}

/// The figures that change from report to report; each value already fits its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    /// `health.status`.
    pub status: HealthStatus,
    /// Whether anything runs on the node, or may.
    pub has_jobs: bool,
    /// `capacity.cpu_cores_available`, 16 bits.
    pub cores_available: u16,
    /// `capacity.memory_gb_available`, GiB, 24 bits.
    pub memory_gb_available: u32,
    /// `capacity.gpus_available`, 8 bits.
    pub gpus_available: u8,
    /// `capacity.storage_gb_available`, GiB, 24 bits.
    pub storage_gb_available: u32,
    /// `latency.avg_cluster_latency_us`, µs, 24 bits.
    pub avg_cluster_latency_us: u32,
    /// Number of `latency.measurements` behind that mean, 8 bits.
    pub measurement_count: u8,
}

impl Body {
    /// From plain numbers; each saturates at its width.
    #[must_use]
    pub fn saturating(status: HealthStatus, f: &Figures) -> Self {
        let u24 = |v: u64| u32::try_from(v).unwrap_or(U24_MAX).min(U24_MAX);
        Self {
            status,
            has_jobs: f.running_count > 0,
            cores_available: u16::try_from(f.cores_available).unwrap_or(u16::MAX),
            memory_gb_available: u24(f.memory_gb_available),
            gpus_available: u8::try_from(f.gpus_available).unwrap_or(u8::MAX),
            storage_gb_available: u24(f.storage_gb_available),
            avg_cluster_latency_us: u24(f.avg_cluster_latency_us),
            measurement_count: u8::try_from(f.measurement_count).unwrap_or(u8::MAX),
        }
    }

    /// flags ‖ cores u16 ‖ memory u24 ‖ gpus u8 ‖ storage u24 ‖ latency u24 ‖ measurements u8.
    #[must_use]
    pub fn encode(&self) -> [u8; BODY_LEN] {
        let flags = self.status.bits() | if self.has_jobs { HAS_JOBS } else { 0 };
        let [c0, c1] = self.cores_available.to_be_bytes();
        let [m0, m1, m2] = to_u24(self.memory_gb_available);
        let [s0, s1, s2] = to_u24(self.storage_gb_available);
        let [l0, l1, l2] = to_u24(self.avg_cluster_latency_us);
        [
            flags,
            c0,
            c1,
            m0,
            m1,
            m2,
            self.gpus_available,
            s0,
            s1,
            s2,
            l0,
            l1,
            l2,
            self.measurement_count,
        ]
    }

    /// Reads signed body bytes.
    ///
    /// # Errors
    /// [`Code::InvalidHealth`] for a status that is none of the five; [`Code::Malformed`] for a set
    /// reserved bit (the section bit counts as reserved here: it is never signed).
    pub fn decode(bytes: &[u8; BODY_LEN]) -> Result<Self, Code> {
        let mut r = Reader::new(bytes);
        let flags = r.u8().ok_or(Code::Malformed)?;
        if flags & (RESERVED | SECTION_FOLLOWS) != 0 {
            return Err(Code::Malformed);
        }
        let mut read = || {
            Some(Self {
                status: HealthStatus::Healthy,
                has_jobs: flags & HAS_JOBS != 0,
                cores_available: r.u16()?,
                memory_gb_available: r.u24()?,
                gpus_available: r.u8()?,
                storage_gb_available: r.u24()?,
                avg_cluster_latency_us: r.u24()?,
                measurement_count: r.u8()?,
            })
        };
        let body = read().ok_or(Code::Malformed)?;
        let status = HealthStatus::from_bits(flags & STATUS_MASK).ok_or(Code::InvalidHealth)?;
        Ok(Self { status, ..body })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_body() -> impl Strategy<Value = Body> {
        (prop::sample::select(&HealthStatus::ALL[..]), any::<[u64; 7]>()).prop_map(|(status, v)| {
            let [running_count, cores, memory, gpus, storage, latency, measurements] = v;
            // Half the range small, so that both sides of every saturation are met.
            let f = Figures {
                running_count: running_count % 3,
                cores_available: cores % 70_000,
                memory_gb_available: memory % 17_000_000,
                gpus_available: gpus % 260,
                storage_gb_available: storage % 17_000_000,
                avg_cluster_latency_us: latency % 17_000_000,
                measurement_count: measurements % 260,
            };
            Body::saturating(status, &f)
        })
    }

    proptest! {
        #[test]
        fn bodies_survive_the_round_trip(body in any_body()) {
            prop_assert_eq!(Body::decode(&body.encode()), Ok(body));
        }

        #[test]
        fn arbitrary_bytes_decode_to_themselves_or_to_a_code(bytes: [u8; BODY_LEN]) {
            if let Ok(body) = Body::decode(&bytes) {
                prop_assert_eq!(body.encode(), bytes);
            }
        }
    }

    #[test]
    fn values_saturate_at_their_width() {
        let all = Figures {
            running_count: u64::MAX,
            cores_available: u64::MAX,
            memory_gb_available: u64::MAX,
            gpus_available: u64::MAX,
            storage_gb_available: u64::MAX,
            avg_cluster_latency_us: 1 << 24,
            measurement_count: 256,
        };
        let body = Body::saturating(HealthStatus::Degraded, &all);
        let mut expected = [0xff; BODY_LEN];
        expected[0] = 0b1010;
        assert_eq!(body.encode(), expected);
    }

    #[test]
    fn an_absent_status_is_refused() {
        assert_eq!(Body::decode(&[0; BODY_LEN]), Err(Code::InvalidHealth));
        let mut framing = Body::saturating(HealthStatus::Healthy, &Figures::default()).encode();
        framing[0] |= SECTION_FOLLOWS;
        assert_eq!(Body::decode(&framing), Err(Code::Malformed));
    }
}
