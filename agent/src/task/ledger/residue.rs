use std::sync::{Arc, PoisonError};

use hpc_schema::id::TaskId;

use super::Ledger;
use super::lock::busy;
use super::release::take_back;
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::journal::{Step, Story, lock};
use crate::task::owner::Owner;
use crate::task::undo::Undone;

/// What a task has left that nobody has any more, and that could not be undone up to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residue {
    /// The task.
    pub task_id: TaskId,
    /// Under which name it worked.
    pub owner: Option<Owner>,
    /// UNIX seconds at which the task ended.
    pub since: u64,
    /// What is left, and why.
    pub findings: Vec<String>,
}

impl Ledger {
    /// What is left that nobody has any more.
    #[must_use]
    pub fn residues(&self) -> Vec<Residue> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let residue = |story: &Story| {
            // Whoever works for the owner may be giving it back right now.
            let busy = story.owner.as_ref().is_some_and(|o| busy.contains(o));
            let ended = story.ended.as_ref().filter(|_| story.is_residue() && !busy)?;
            let left = |(n, s): (usize, &Step)| {
                let stuck = story.findings_of(n);
                s.remains()
                    .then(|| stuck.unwrap_or_else(|| s.effect.act().shown()))
            };
            Some(Residue {
                task_id: story.task.task_id.clone(),
                owner: story.owner.clone(),
                since: ended.finished_at,
                findings: story.steps.iter().enumerate().filter_map(left).collect(),
            })
        };
        self.all()
            .iter()
            .filter_map(|j| residue(lock(j).story()))
            .collect()
    }

    /// Tries again to take away what is left of a task.
    ///
    /// # Errors
    /// IO; [`ResourceBusy`](hpc_schema::code::Code::ResourceBusy) while a task works for its owner.
    pub fn retry(self: &Arc<Self>, host: &Host, residue: &Residue) -> Result<Undone, Failure> {
        let _held = match &residue.owner {
            Some(owner) => Some(self.lock_owner(owner).ok_or_else(|| busy(owner))?),
            None => None,
        };
        match self.find(&residue.task_id) {
            Some(journal) if lock(&journal).story().is_residue() => take_back(host, &journal, "leftovers"),
            _ => Ok(Undone::default()),
        }
    }
}
