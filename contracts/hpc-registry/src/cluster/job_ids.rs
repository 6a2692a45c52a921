//! What of job ids a cluster's setting lets stand.

use hpc_schema::id::ClusterId;
use hpc_schema::registry::JobIds;
use hpc_schema::report::{Section, hashed_job_id};

fn is_hashed(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// These ids as the setting shows them.
pub(crate) fn shown(setting: JobIds, cluster: &ClusterId, ids: &[String]) -> Vec<String> {
    match setting {
        JobIds::None => Vec::new(),
        JobIds::Plain => ids.to_vec(),
        JobIds::Hashed => ids
            .iter()
            .map(|id| {
                if is_hashed(id) {
                    id.clone()
                } else {
                    hashed_job_id(cluster, id)
                }
            })
            .collect(),
    }
}

/// The section to be stored where the agent's says more than the setting allows; `None`: as it was signed.
pub(crate) fn restrained(setting: JobIds, cluster: &ClusterId, section: &Section) -> Option<Vec<u8>> {
    let jobs = shown(setting, cluster, &section.jobs);
    (jobs != section.jobs).then(|| {
        Section {
            jobs,
            ..section.clone()
        }
        .encode()
    })
}
