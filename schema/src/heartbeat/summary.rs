//! What of a payload goes on chain: the report's body and the second section.
//!
//! Both follow from the payload and the cluster's privacy setting alone, so whoever holds the payload
//! can derive them and compare.

use super::{Heartbeat, JobId};
use crate::id::ClusterId;
use crate::registry::JobIds;
use crate::report::{Body, Figures, Measurement, Section, hashed_job_id};

/// Whether anything runs on the node: by `jobs.running_count`, or where that is absent by what `jobs.active_job_ids` names.
/// None if the payload says neither: it is not known (protocol decisions 18 and 23).
#[must_use]
pub(crate) fn running(heartbeat: &Heartbeat) -> Option<bool> {
    let jobs = heartbeat.jobs.as_ref()?;
    let named = (!jobs.active_job_ids.is_empty()).then_some(true);
    jobs.running_count.map(|n| n > 0).or(named)
}

/// The report's body; every figure saturates at its width, what is absent is 0. Where it is not known whether anything runs,
/// it says that something does: else a draining node would be taken for drained.
#[must_use]
pub fn body_of(heartbeat: &Heartbeat) -> Body {
    let c = &heartbeat.capacity;
    let latency = heartbeat.latency.as_ref();
    let average = latency.and_then(|l| l.avg_cluster_latency_us);
    // What was lost is no part of the mean, and without a mean there is nothing to weigh.
    let measured = latency.filter(|_| average.is_some()).map_or(0, |l| {
        l.measurements.iter().filter(|m| m.latency_us.is_some()).count()
    });
    let figures = Figures {
        // A body has room for whether, not for how many.
        running_count: u64::from(running(heartbeat).unwrap_or(true)),
        cores_available: u64::from(c.cpu_cores_available),
        memory_gb_available: u64::from(c.memory_gb_available),
        gpus_available: c.gpus_available.map_or(0, u64::from),
        storage_gb_available: c.storage_gb_available.map_or(0, u64::from),
        avg_cluster_latency_us: average.unwrap_or(0),
        measurement_count: u64::try_from(measured).unwrap_or(u64::MAX),
    };
    Body::saturating(heartbeat.health.status, &figures)
}

/// The second section. Of job ids it holds what `privacy` allows; `jobs_total` is the length of
/// `active_job_ids` in any case.
#[must_use]
pub fn section_of(heartbeat: &Heartbeat, privacy: JobIds) -> Section {
    let c = &heartbeat.capacity;
    let ids: &[JobId] = heartbeat.jobs.as_ref().map_or(&[], |j| &j.active_job_ids);
    let measurements = heartbeat.latency.as_ref().map_or(&[][..], |l| &l.measurements);
    Section {
        cores_total: c.cpu_cores_total,
        memory_gb_total: c.memory_gb_total,
        gpus_total: c.gpus_total.map_or(0, |n| u16::try_from(n).unwrap_or(u16::MAX)),
        storage_gb_total: c.storage_gb_total.unwrap_or(0),
        agent_version: heartbeat
            .agent_version
            .as_ref()
            .map_or_else(String::new, |l| l.as_str().to_owned()),
        gpu_type: c
            .gpu_type
            .as_ref()
            .map_or_else(String::new, |l| l.as_str().to_owned()),
        jobs: public_ids(&heartbeat.cluster_id, ids, privacy),
        jobs_total: u16::try_from(ids.len()).unwrap_or(u16::MAX),
        measurements: measurements
            .iter()
            .take(crate::report::MAX_MEASUREMENTS)
            .map(|m| Measurement {
                target: m.target_node_id.clone(),
                latency_us: m.latency_us.map_or(0, |us| u32::try_from(us).unwrap_or(u32::MAX)),
                packet_loss_percent: m.packet_loss_percent.get(),
                measured_at: u32::try_from(m.measured_at.seconds().0).unwrap_or(u32::MAX),
            })
            .collect(),
    }
}

fn public_ids(cluster: &ClusterId, ids: &[JobId], privacy: JobIds) -> Vec<String> {
    let ids = ids.iter().take(crate::report::MAX_JOBS);
    match privacy {
        JobIds::Plain => ids.map(|id| id.as_str().to_owned()).collect(),
        JobIds::Hashed => ids.map(|id| hashed_job_id(cluster, id.as_str())).collect(),
        JobIds::None => Vec::new(),
    }
}
