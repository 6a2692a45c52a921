//! Signed reports of a fleet, in the registry's encoding and in that of the naive contract.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_bench_naive::msg::{JsonReport, NewNode};
use hpc_schema::id::NodeId;
use hpc_schema::node::HealthStatus;
use hpc_schema::report::batch::{Outgoing, encode};
use hpc_schema::report::{Body, Figures, Report, Section, section_digest};
use sha2::{Digest as _, Sha256};

use super::fleet::{Domain, Fleet, Node, Place, public};

/// Epoch of nodes that the naive contract took on trust.
const EPOCH: u64 = 1;

/// What of the reports' rarely changing part is new in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sections {
    /// Every report carries its section: the first round.
    All,
    /// None does: nothing changed.
    None,
    /// The first of so many per cent of the nodes carry one with new job ids. No round of `None` may follow: it speaks of
    /// the section of the first round.
    PerCent(usize),
    /// Every report carries one with so many new job ids of the greatest length. The same holds.
    Jobs(usize),
}

/// A report with all that an encoding needs.
#[derive(Debug)]
pub struct Signed {
    node: NodeId,
    place: Place,
    report: Report,
    signature: [u8; 64],
    section: Option<Vec<u8>>,
}

impl Signed {
    /// Bytes of the attached section.
    pub(super) fn section_len(&self) -> Option<usize> {
        self.section.as_ref().map(Vec::len)
    }
}

impl Fleet {
    /// One signed report of every node picked. Cores, memory, latency and sequence differ from every report before.
    ///
    /// # Errors
    /// If a node has no place yet, or none was picked.
    pub fn reports(
        &mut self,
        now: u64,
        sections: Sections,
        pick: impl Fn(usize) -> bool,
    ) -> Result<Vec<Signed>> {
        let count = self.nodes.len();
        let mut signed = Vec::new();
        let picked = self.nodes.iter_mut().enumerate();
        for (number, node) in picked.filter(|(number, _)| pick(*number)) {
            node.sequence += 1;
            let place = node.place.context("the node is not registered")?;
            let (attached, jobs) = match sections {
                Sections::All => (true, first_jobs()),
                Sections::None => (false, first_jobs()),
                Sections::PerCent(share) if number * 100 < count * share => {
                    (true, vec![format!("slurm-{}", node.sequence)])
                }
                Sections::PerCent(_) => (false, first_jobs()),
                Sections::Jobs(jobs) => {
                    let job = |job: usize| format!("{:x>59}-{job:04}", node.sequence);
                    (true, (0..jobs).map(job).collect())
                }
            };
            let section = section(jobs).encode();
            let report = Report {
                time: u32::try_from(now)?,
                sequence: node.sequence,
                body: body(number, node.sequence)?,
                section_digest: section_digest(&section),
                payload_hash: Sha256::digest(format!("payload {} {}", node.id, node.sequence)).into(),
            };
            signed.push(Signed {
                node: node.id.clone(),
                place,
                report,
                signature: node.key.sign(&report.message(&place.tag)).into(),
                section: attached.then_some(section),
            });
        }
        ensure!(!signed.is_empty(), "no node was picked");
        Ok(signed)
    }

    /// Gives the nodes numbers, as the naive contract has them, and says how it registers them.
    ///
    /// # Errors
    /// If there are too many.
    pub fn place_naively(&mut self, domain: Domain<'_>) -> Result<Vec<NewNode>> {
        ensure!(self.nodes.len() <= 64, "one page is enough here");
        let slot = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let digest = section_digest(&section(first_jobs()).encode());
        let new = |(number, node): (usize, &Node)| {
            Ok(NewNode {
                node_id: node.id.clone(),
                agent_pubkey: public(&node.key)?.as_bytes().into(),
                epoch: EPOCH,
                page: 0,
                slot: slot(number),
                section_digest: (&digest).into(),
            })
        };
        let new = self.nodes.iter().enumerate().map(new).collect();
        self.put(domain, |number, _| Some((0, slot(number), EPOCH, 0)))?;
        new
    }
}

/// Reports as the base64 of a batch.
///
/// # Errors
/// If they cannot stand in one.
pub fn batch(reports: &[Signed]) -> Result<String> {
    let outgoing: Vec<Outgoing<'_>> = reports
        .iter()
        .map(|r| Outgoing {
            page: r.place.page,
            slot: r.place.slot,
            report: &r.report,
            signature: &r.signature,
            section: r.section.as_deref(),
        })
        .collect();
    Ok(STANDARD.encode(encode(&outgoing)?))
}

/// Reports as the naive contract takes them in its JSON layout.
#[must_use]
pub fn json(fleet: &Fleet, reports: &[Signed]) -> Vec<JsonReport> {
    reports
        .iter()
        .map(|r| JsonReport {
            cluster_id: fleet.cluster.clone(),
            node_id: r.node.clone(),
            sequence: r.report.sequence,
            timestamp: r.report.time,
            status: r.report.body.status,
            has_jobs: r.report.body.has_jobs,
            cores_available: r.report.body.cores_available,
            memory_gb_available: r.report.body.memory_gb_available,
            gpus_available: r.report.body.gpus_available,
            storage_gb_available: r.report.body.storage_gb_available,
            avg_latency_us: r.report.body.avg_cluster_latency_us,
            measurements: r.report.body.measurement_count,
            payload_hash: (&r.report.payload_hash).into(),
            signature: (&r.signature).into(),
        })
        .collect()
}

fn body(number: usize, sequence: u32) -> Result<Body> {
    let (number, round) = (u64::try_from(number)?, u64::from(sequence));
    let figures = Figures {
        running_count: 1,
        cores_available: (number + 7 * round) % 64,
        memory_gb_available: (3 * number + 11 * round) % 256,
        gpus_available: (number + round) % 5,
        storage_gb_available: 1_500,
        avg_cluster_latency_us: 40 + (number + 13 * round) % 900,
        measurement_count: 3,
    };
    Ok(Body::saturating(HealthStatus::Healthy, &figures))
}

fn first_jobs() -> Vec<String> {
    vec!["slurm-1".into()]
}

fn section(jobs: Vec<String>) -> Section {
    Section {
        cores_total: 64,
        memory_gb_total: 256,
        gpus_total: 4,
        storage_gb_total: 2_000,
        agent_version: "0.1.0".into(),
        gpu_type: "NVIDIA A100 80GB".into(),
        jobs_total: u16::try_from(jobs.len()).unwrap_or(u16::MAX),
        jobs,
        measurements: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_changes_cores_memory_and_latency() {
        for number in 0..300 {
            let (a, b) = (body(number, 3).unwrap(), body(number, 4).unwrap());
            assert_ne!(a.cores_available, b.cores_available);
            assert_ne!(a.memory_gb_available, b.memory_gb_available);
            assert_ne!(a.avg_cluster_latency_us, b.avg_cluster_latency_us);
        }
    }

    #[test]
    fn sections_of_a_round_are_those_that_it_asks_for() {
        let mut fleet = Fleet::new("bench", 20).unwrap();
        let domain = Domain {
            chain_id: "c",
            contract: "k",
        };
        fleet.place_naively(domain).unwrap();
        let mut attached = |sections| {
            let reports = fleet.reports(1, sections, |_| true).unwrap();
            reports.iter().filter(|r| r.section.is_some()).count()
        };
        assert_eq!(
            [Sections::All, Sections::None, Sections::PerCent(5)].map(&mut attached),
            [20, 0, 1]
        );
        let reports = fleet.reports(1, Sections::Jobs(3), |n| n == 0).unwrap();
        assert!(reports[0].section.as_ref().unwrap().len() > 3 * 64);
    }
}
