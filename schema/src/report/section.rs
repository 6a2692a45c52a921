//! The second section: rarely changing detail, carried only when its digest changes.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::body::Body;
use super::bytes::{Reader, lp};
use crate::code::Code;
use crate::id::{ClusterId, NodeId};

/// Largest section, bytes.
pub const MAX_SECTION: usize = 4096;
/// Largest `agent_version`, bytes.
pub const MAX_AGENT_VERSION: usize = 32;
/// Largest `gpu_type`, bytes.
pub const MAX_GPU_TYPE: usize = 64;
/// Job ids carried at most; `jobs_total` says how many there are.
pub const MAX_JOBS: usize = 64;
/// Largest job id, bytes.
pub const MAX_JOB_ID: usize = 64;
/// Latency measurements carried at most.
pub const MAX_MEASUREMENTS: usize = 16;

const VERSION: u8 = 1;

/// First 16 bytes of SHA-256 over the section's bytes; all zero on record means "none yet".
pub type SectionDigest = [u8; 16];

/// The digest that stands in the signed report.
#[must_use]
pub fn section_digest(section: &[u8]) -> SectionDigest {
    let mut digest = [0; 16];
    for (to, from) in digest.iter_mut().zip(Sha256::digest(section)) {
        *to = from;
    }
    digest
}

/// A job id under the privacy setting `hashed`: the first 16 hex digits of
/// SHA-256(`hpc-job-v1` ‖ lp(cluster id) ‖ lp(job id)).
#[must_use]
pub fn hashed_job_id(cluster: &ClusterId, job_id: &str) -> String {
    let mut input = b"hpc-job-v1".to_vec();
    lp(&mut input, cluster.as_str());
    lp(&mut input, job_id);
    hex::encode(
        Sha256::digest(&input)
            .iter()
            .take(8)
            .copied()
            .collect::<Vec<u8>>(),
    )
}

/// One latency measurement to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// The peer.
    pub target: NodeId,
    /// Round trip, µs; saturates at 2³²−1.
    pub latency_us: u32,
    /// Lost probes, 0–100 %.
    pub packet_loss_percent: u8,
    /// UNIX seconds.
    pub measured_at: u32,
}

/// Version 1: version u8 = 1 ‖ cores u32 ‖ memory GiB u32 ‖ gpus u16 ‖ storage GiB u32 ‖ agent version ‖ GPU type ‖
/// jobs ‖ jobs total u16 ‖ measurements; texts as length byte and printable ASCII.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// `capacity.cpu_cores_total`.
    pub cores_total: u32,
    /// `capacity.memory_gb_total`, GiB.
    pub memory_gb_total: u32,
    /// `capacity.gpus_total`.
    pub gpus_total: u16,
    /// `capacity.storage_gb_total`, GiB.
    pub storage_gb_total: u32,
    /// `agent_version`, at most 32 bytes.
    pub agent_version: String,
    /// `capacity.gpu_type`, at most 64 bytes; empty if none.
    pub gpu_type: String,
    /// `jobs.active_job_ids` under the cluster's privacy setting, at most 64 of 1 to 64 bytes.
    pub jobs: Vec<String>,
    /// How many jobs run in all, listed or not.
    pub jobs_total: u16,
    /// `latency.measurements`, at most 16.
    pub measurements: Vec<Measurement>,
}

impl Section {
    /// The bytes. Lists are cut at their bounds, texts at theirs with characters outside printable ASCII
    /// replaced by `?`, loss at 100; if the whole were longer than [`MAX_SECTION`], job ids are left out from
    /// the end until it fits.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut jobs: Vec<Cow<'_, str>> = self
            .jobs
            .iter()
            .filter(|j| !j.is_empty())
            .take(MAX_JOBS)
            .map(|j| printable(j, MAX_JOB_ID))
            .collect();
        loop {
            let bytes = self.encode_with(&jobs);
            if bytes.len() <= MAX_SECTION || jobs.pop().is_none() {
                return bytes;
            }
        }
    }

    fn encode_with(&self, jobs: &[Cow<'_, str>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.push(VERSION);
        out.extend_from_slice(&self.cores_total.to_be_bytes());
        out.extend_from_slice(&self.memory_gb_total.to_be_bytes());
        out.extend_from_slice(&self.gpus_total.to_be_bytes());
        out.extend_from_slice(&self.storage_gb_total.to_be_bytes());
        short(&mut out, &printable(&self.agent_version, MAX_AGENT_VERSION));
        short(&mut out, &printable(&self.gpu_type, MAX_GPU_TYPE));
        out.push(u8::try_from(jobs.len()).unwrap_or(u8::MAX));
        for job in jobs {
            short(&mut out, job);
        }
        out.extend_from_slice(&self.jobs_total.to_be_bytes());
        let measurements = self.measurements.iter().take(MAX_MEASUREMENTS);
        out.push(u8::try_from(measurements.len()).unwrap_or(u8::MAX));
        for m in measurements {
            short(&mut out, m.target.as_str());
            out.extend_from_slice(&m.latency_us.to_be_bytes());
            out.push(m.packet_loss_percent.min(100));
            out.extend_from_slice(&m.measured_at.to_be_bytes());
        }
        out
    }

    /// Reads a section; every byte must be accounted for.
    ///
    /// # Errors
    /// [`Code::UnsupportedVersion`], [`Code::Malformed`] (length, bounds, characters, trailing bytes).
    pub fn decode(bytes: &[u8]) -> Result<Self, Code> {
        if bytes.len() > MAX_SECTION {
            return Err(Code::Malformed);
        }
        let mut r = Reader::new(bytes);
        match r.u8() {
            Some(VERSION) => {}
            Some(_) => return Err(Code::UnsupportedVersion),
            None => return Err(Code::Malformed),
        }
        let section = Self::decode_v1(&mut r).ok_or(Code::Malformed)?;
        if r.is_empty() {
            Ok(section)
        } else {
            Err(Code::Malformed)
        }
    }

    fn decode_v1(r: &mut Reader<'_>) -> Option<Self> {
        let cores_total = r.u32()?;
        let memory_gb_total = r.u32()?;
        let gpus_total = r.u16()?;
        let storage_gb_total = r.u32()?;
        let agent_version = text(r.short()?, MAX_AGENT_VERSION)?;
        let gpu_type = text(r.short()?, MAX_GPU_TYPE)?;
        let job_count = usize::from(r.u8()?);
        if job_count > MAX_JOBS {
            return None;
        }
        let mut jobs = Vec::with_capacity(job_count);
        for _ in 0..job_count {
            jobs.push(text(r.short()?, MAX_JOB_ID).filter(|j| !j.is_empty())?);
        }
        let jobs_total = r.u16()?;
        let measurement_count = usize::from(r.u8()?);
        if measurement_count > MAX_MEASUREMENTS {
            return None;
        }
        let mut measurements = Vec::with_capacity(measurement_count);
        for _ in 0..measurement_count {
            measurements.push(Measurement {
                target: text(r.short()?, 64)?.parse().ok()?,
                latency_us: r.u32()?,
                packet_loss_percent: r.u8().filter(|p| *p <= 100)?,
                measured_at: r.u32()?,
            });
        }
        Some(Self {
            cores_total,
            memory_gb_total,
            gpus_total,
            storage_gb_total,
            agent_version,
            gpu_type,
            jobs,
            jobs_total,
            measurements,
        })
    }

    /// Totals of at least one core and one GiB, and nothing more available than there is
    /// (saturated availables pass if the total is at least the saturated value).
    ///
    /// # Errors
    /// [`Code::InvalidCapacity`].
    pub fn check_capacity(&self, body: &Body) -> Result<(), Code> {
        let fits = self.cores_total >= 1
            && self.memory_gb_total >= 1
            && u32::from(body.cores_available) <= self.cores_total
            && body.memory_gb_available <= self.memory_gb_total
            && u16::from(body.gpus_available) <= self.gpus_total
            && body.storage_gb_available <= self.storage_gb_total;
        if fits { Ok(()) } else { Err(Code::InvalidCapacity) }
    }
}

fn short(out: &mut Vec<u8>, text: &str) {
    let len = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(len);
    out.extend(text.bytes().take(usize::from(len)));
}

/// Mostly it is as it should be already.
fn printable(text: &str, max: usize) -> Cow<'_, str> {
    let cut = text.get(..max).unwrap_or(text);
    if is_printable(cut.as_bytes()) {
        return Cow::Borrowed(cut);
    }
    text.chars()
        .take(max)
        .map(|c| if matches!(c, ' '..='~') { c } else { '?' })
        .collect()
}

fn is_printable(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b' '..=b'~'))
}

fn text(bytes: &[u8], max: usize) -> Option<String> {
    if bytes.len() > max || !is_printable(bytes) {
        return None;
    }
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node::HealthStatus;
    use crate::report::Figures;

    fn any_section() -> impl Strategy<Value = Section> {
        (
            any::<(u32, u32, u16, u32, u16)>(),
            "[ -~]{0,32}",
            "[ -~]{0,64}",
            prop::collection::vec("[ -~]{1,24}", 0..=MAX_JOBS),
            prop::collection::vec(
                ("[a-z0-9][a-z0-9._-]{3,30}", any::<u32>(), 0u8..=100, any::<u32>()),
                0..=16,
            ),
        )
            .prop_map(
                |((cores, memory, gpus, storage, total), agent_version, gpu_type, jobs, m)| Section {
                    cores_total: cores,
                    memory_gb_total: memory,
                    gpus_total: gpus,
                    storage_gb_total: storage,
                    agent_version,
                    gpu_type,
                    jobs,
                    jobs_total: total,
                    measurements: m
                        .into_iter()
                        .map(
                            |(target, latency_us, packet_loss_percent, measured_at)| Measurement {
                                target: target.parse().unwrap(),
                                latency_us,
                                packet_loss_percent,
                                measured_at,
                            },
                        )
                        .collect(),
                },
            )
    }

    proptest! {
        #[test]
        fn sections_survive_the_round_trip(section in any_section()) {
            let bytes = section.encode();
            prop_assert!(bytes.len() <= MAX_SECTION);
            prop_assert_eq!(Section::decode(&bytes), Ok(section));
        }

        #[test]
        fn a_text_is_cut_and_made_printable_character_by_character(text in "[ -~]{0,9}\\PC{0,3}[ -~]{0,3}", max in 0usize..16) {
            let each = text.chars().take(max).map(|c| if matches!(c, ' '..='~') { c } else { '?' });
            prop_assert_eq!(printable(&text, max), each.collect::<String>());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), v1: bool) {
            if let (true, Some(first)) = (v1, bytes.first_mut()) {
                *first = 1;
            }
            if let Ok(section) = Section::decode(&bytes) {
                prop_assert_eq!(section.encode(), bytes);
            }
        }

        #[test]
        fn every_truncation_and_every_trailing_byte_is_refused(section in any_section(), extra: u8) {
            let mut bytes = section.encode();
            for len in 0..bytes.len() {
                prop_assert!(Section::decode(&bytes[..len]).is_err());
            }
            bytes.push(extra);
            prop_assert_eq!(Section::decode(&bytes), Err(Code::Malformed));
        }
    }

    #[test]
    fn texts_are_cut_and_made_printable() {
        let section = Section {
            agent_version: "v".repeat(99),
            gpu_type: "GPU\u{7} \u{e9}".to_owned(),
            jobs: vec!["j".repeat(64); 90],
            measurements: vec![
                Measurement {
                    target: "n".repeat(64).parse().unwrap(),
                    latency_us: 1,
                    packet_loss_percent: 200,
                    measured_at: 1
                };
                20
            ],
            ..Section::default()
        };
        let bytes = section.encode();
        assert!(bytes.len() <= MAX_SECTION);
        let back = Section::decode(&bytes).unwrap();
        assert_eq!(back.agent_version.len(), 32);
        assert_eq!(back.gpu_type, "GPU? ?");
        assert_eq!(back.measurements.len(), 16);
        assert_eq!(back.measurements[0].packet_loss_percent, 100);
        assert!(back.jobs.len() > 30, "as many jobs as fit");
    }

    #[test]
    fn more_available_than_there_is_is_refused() {
        let body = Body::saturating(
            HealthStatus::Healthy,
            &Figures {
                cores_available: 8,
                memory_gb_available: 16,
                ..Figures::default()
            },
        );
        let section = Section {
            cores_total: 8,
            memory_gb_total: 16,
            ..Section::default()
        };
        assert_eq!(section.check_capacity(&body), Ok(()));
        for bad in [
            Section {
                cores_total: 7,
                ..section.clone()
            },
            Section {
                memory_gb_total: 15,
                ..section.clone()
            },
            Section {
                cores_total: 0,
                ..section
            },
        ] {
            assert_eq!(bad.check_capacity(&body), Err(Code::InvalidCapacity));
        }
    }

    #[test]
    fn versions_other_than_one_are_named() {
        assert_eq!(Section::decode(&[2]), Err(Code::UnsupportedVersion));
        assert_eq!(Section::decode(&[]), Err(Code::Malformed));
    }

    #[test]
    fn a_hashed_job_id_has_sixteen_hex_digits_and_depends_on_the_cluster() {
        let a = hashed_job_id(&"cluster-a".parse().unwrap(), "slurm-1");
        assert_eq!(a.len(), 16);
        assert_ne!(a, hashed_job_id(&"cluster-b".parse().unwrap(), "slurm-1"));
    }
}
