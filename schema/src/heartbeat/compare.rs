//! Whether a report says what its payload says.

use super::Heartbeat;
use super::summary::{body_of, running};
use crate::code::Code;
use crate::refusal::Refusal;
use crate::report::{Report, section_digest};

pub(super) fn mismatch(field: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal::field(Code::ReportMismatch, field, what)
}

/// Whether a report says what the payload says, field by field. It may say either of jobs where the payload says nothing, and
/// count lost probes among the measurements where there is a mean.
///
/// # Errors
/// [`Code::ReportMismatch`] with the report's field, as `auth.report.cores_available`.
pub(super) fn check_report(
    report: &Report,
    heartbeat: &Heartbeat,
    payload_hash: &[u8; 32],
    section: &[u8],
) -> Result<(), Refusal> {
    let (said, is) = (&report.body, body_of(heartbeat));
    let has_jobs = running(heartbeat).unwrap_or(said.has_jobs);
    // Beside a mean lost probes may be counted too, as agents have.
    let with_mean = heartbeat
        .latency
        .as_ref()
        .filter(|l| l.avg_cluster_latency_us.is_some());
    let counts_all = with_mean.is_some_and(|l| l.measurements.len() == usize::from(said.measurement_count));
    let measurement_count = if counts_all {
        said.measurement_count
    } else {
        is.measurement_count
    };
    let numbers = [
        ("time", u64::from(report.time), heartbeat.timestamp.seconds().0),
        (
            "sequence",
            u64::from(report.sequence),
            u64::from(heartbeat.sequence_number.get()),
        ),
        (
            "cores_available",
            u64::from(said.cores_available),
            u64::from(is.cores_available),
        ),
        (
            "memory_gb_available",
            u64::from(said.memory_gb_available),
            u64::from(is.memory_gb_available),
        ),
        (
            "gpus_available",
            u64::from(said.gpus_available),
            u64::from(is.gpus_available),
        ),
        (
            "storage_gb_available",
            u64::from(said.storage_gb_available),
            u64::from(is.storage_gb_available),
        ),
        (
            "avg_cluster_latency_us",
            u64::from(said.avg_cluster_latency_us),
            u64::from(is.avg_cluster_latency_us),
        ),
        (
            "measurement_count",
            u64::from(said.measurement_count),
            u64::from(measurement_count),
        ),
        ("has_jobs", u64::from(said.has_jobs), u64::from(has_jobs)),
    ];
    for (name, said, is) in numbers {
        if said != is {
            return Err(mismatch(
                &format!("auth.report.{name}"),
                format_args!("says {said}, the payload {is}"),
            ));
        }
    }
    if said.status != is.status {
        return Err(mismatch(
            "auth.report.status",
            format_args!("says {}, the payload {}", said.status, is.status),
        ));
    }
    if report.payload_hash != *payload_hash {
        return Err(mismatch(
            "auth.report.payload_hash",
            "is not SHA-256 of the heartbeat value as sent",
        ));
    }
    if report.section_digest != section_digest(section) {
        return Err(mismatch(
            "auth.report.section_digest",
            "is not that of the section that follows from the payload and the cluster's job_ids setting",
        ));
    }
    Ok(())
}
