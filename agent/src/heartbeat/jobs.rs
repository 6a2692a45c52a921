//! Work on this node for the heartbeat: the batch system's, and what tasks hold. Pure but for what was remembered.

use std::path::Path;

use hpc_schema::heartbeat::{JobId, Jobs, Label, MAX_ACTIVE_JOBS};

use crate::probe::slurm::{Answer, SlurmJobs, remembered};

/// What the batch system runs here. While the batch system does not answer, the last known jobs go on running (`last`): a node that
/// forgot them would look drained. What waits and what has ended is not known then.
#[must_use]
pub fn jobs(answer: Option<&Answer<SlurmJobs>>, last: Option<&Jobs>) -> Option<Jobs> {
    match answer {
        Some(Answer::Said(s)) => Some(Jobs {
            running_count: Some(u32::try_from(s.active.len()).unwrap_or(u32::MAX)),
            pending_count: s.pending,
            completed_24h: s.ended.map(|e| e.completed),
            failed_24h: s.ended.map(|e| e.failed),
            active_job_ids: s
                .active
                .iter()
                .take(MAX_ACTIVE_JOBS)
                .filter_map(|id| Label::lossy(&format!("slurm-{id}")))
                .collect(),
        }),
        // Nothing runs here but what tasks hold.
        Some(Answer::NotHere) => Some(Jobs {
            running_count: Some(0),
            pending_count: Some(0),
            ..Jobs::default()
        }),
        Some(Answer::Silent) | None => last.map(|last| Jobs {
            running_count: last.running_count,
            active_job_ids: last.active_job_ids.clone(),
            ..Jobs::default()
        }),
    }
}

/// The same with what tasks hold. It runs here whatever the batch system says or does not.
#[must_use]
pub fn with_held(jobs: Option<Jobs>, work: &[JobId]) -> Option<Jobs> {
    if work.is_empty() {
        return jobs;
    }
    let mut jobs = jobs.unwrap_or_default();
    let held = u32::try_from(work.len()).unwrap_or(u32::MAX);
    jobs.running_count = Some(jobs.running_count.unwrap_or(0).saturating_add(held));
    let room = MAX_ACTIVE_JOBS.saturating_sub(jobs.active_job_ids.len());
    jobs.active_job_ids.extend(work.iter().take(room).cloned());
    Some(jobs)
}

/// What of the batch system ran here when an agent last looked, which may be nothing; none if that is not known.
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
            ended: Some(ended),
            since: 0,
        });
        let j = jobs(Some(&said), None).unwrap();
        assert_eq!(
            (j.running_count, j.pending_count, j.completed_24h, j.failed_24h),
            (Some(2), Some(1), Some(15), Some(1))
        );
        assert_eq!(j.active_job_ids[0].as_str(), "slurm-12345");
        let known = Jobs {
            pending_count: None,
            completed_24h: None,
            failed_24h: None,
            ..j.clone()
        };
        assert_eq!(jobs(Some(&Answer::Silent), Some(&j)), Some(known.clone()));
        assert_eq!(jobs(None, Some(&j)), Some(known));
        assert_eq!(jobs(Some(&Answer::NotHere), None).unwrap().running_count, Some(0));
        assert_eq!(jobs(Some(&Answer::Silent), None), None);
    }

    #[test]
    fn what_tasks_hold_runs_here_whatever_slurm_says() {
        let id = |text: &str| Label::lossy(text).unwrap();
        let work = [id("vm-1"), id("alloc-2")];
        let slurm = |n: u32| Jobs {
            running_count: Some(n),
            pending_count: Some(1),
            active_job_ids: (0..n).map(|i| id(&format!("slurm-{i}"))).collect(),
            ..Jobs::default()
        };
        let both = with_held(Some(slurm(1)), &work).unwrap();
        assert_eq!((both.running_count, both.pending_count), (Some(3), Some(1)));
        let ids: Vec<&str> = both.active_job_ids.iter().map(JobId::as_str).collect();
        assert_eq!(ids, ["slurm-0", "vm-1", "alloc-2"]);
        assert_eq!(with_held(None, &work).unwrap().running_count, Some(2));
        assert_eq!(with_held(None, &[]), None);
        assert_eq!(with_held(Some(slurm(1)), &[]), Some(slurm(1)));
        let full = with_held(Some(slurm(511)), &work).unwrap();
        assert_eq!(
            (full.running_count, full.active_job_ids.len()),
            (Some(513), MAX_ACTIVE_JOBS)
        );
    }
}
