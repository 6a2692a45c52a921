//! Jobs and daemons of this node for the heartbeat. Pure.

use std::path::Path;

use hpc_schema::heartbeat::{Jobs, Label, MAX_ACTIVE_JOBS};

use crate::probe::slurm::{Answer, SlurmJobs, remembered};

/// What runs here. While the batch system does not answer, the last known jobs go on running (`last`): a node that
/// forgot them would look drained.
#[must_use]
pub fn jobs(answer: Option<&Answer<SlurmJobs>>, last: Option<&Jobs>) -> Option<Jobs> {
    match answer {
        Some(Answer::Said(s)) => Some(Jobs {
            running_count: Some(u32::try_from(s.active.len()).unwrap_or(u32::MAX)),
            pending_count: s.pending,
            completed_24h: Some(s.ended.completed),
            failed_24h: Some(s.ended.failed),
            active_job_ids: s
                .active
                .iter()
                .take(MAX_ACTIVE_JOBS)
                .filter_map(|id| Label::lossy(&format!("slurm-{id}")))
                .collect(),
        }),
        // Nothing of anybody's runs here but what we know of: nothing yet.
        Some(Answer::NotHere) => Some(Jobs {
            running_count: Some(0),
            pending_count: Some(0),
            ..Jobs::default()
        }),
        Some(Answer::Silent) | None => last.cloned(),
    }
}

/// What ran here when an agent last looked; none if nothing did.
#[must_use]
pub fn remembered_jobs(state_dir: &Path, unix: u64) -> Option<Jobs> {
    jobs(Some(&Answer::Said(remembered(state_dir, unix)?)), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::slurm::Ended;

    #[test]
    fn slurms_jobs_are_named_and_a_silent_slurm_makes_no_node_look_drained() {
        let ended = Ended {
            completed: 15,
            failed: 1,
            withdrawn: 2,
            unknown: 0,
        };
        let said = Answer::Said(SlurmJobs {
            active: vec![12345, 12346],
            pending: Some(1),
            ended,
            since: 0,
        });
        let j = jobs(Some(&said), None).unwrap();
        assert_eq!(
            (j.running_count, j.pending_count, j.completed_24h, j.failed_24h),
            (Some(2), Some(1), Some(15), Some(1))
        );
        assert_eq!(j.active_job_ids[0].as_str(), "slurm-12345");
        assert_eq!(jobs(Some(&Answer::Silent), Some(&j)), Some(j.clone()));
        assert_eq!(jobs(None, Some(&j)), Some(j));
        assert_eq!(jobs(Some(&Answer::NotHere), None).unwrap().running_count, Some(0));
        assert_eq!(jobs(Some(&Answer::Silent), None), None);
    }
}
