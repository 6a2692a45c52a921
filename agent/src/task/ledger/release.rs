use std::sync::Arc;

use super::Ledger;
use super::lock::busy;
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::journal::{Record, Shared, lock};
use crate::task::owner::Owner;
use crate::task::undo::{self, Undone};

impl Ledger {
    /// Gives back all that an owner holds, newest first; whoever calls has the owner's lock. The same as undoing.
    ///
    /// # Errors
    /// IO. What could not be undone stands in the answer and stays held.
    pub(in crate::task) fn give_back(&self, host: &Host, owner: &Owner, by: &str) -> Result<Undone, Failure> {
        let mut all = Undone::default();
        for holding in self.held_by(owner) {
            let Some(journal) = self.find(&holding.task_id) else {
                continue;
            };
            all.merge(take_back(host, &journal, by)?);
        }
        Ok(all)
    }

    /// Gives back what the owner holds, for whoever looks after what is held.
    ///
    /// # Errors
    /// [`ResourceBusy`](hpc_schema::code::Code::ResourceBusy) while a task works for the owner.
    pub fn release(self: &Arc<Self>, host: &Host, owner: &Owner, by: &str) -> Result<Undone, Failure> {
        let Some(_lock) = self.lock_owner(owner) else {
            return Err(busy(owner));
        };
        self.give_back(host, owner, by)
    }
}

/// Undoes what a task has left; a completed one then has given it back. Whoever calls has the owner's lock.
pub(super) fn take_back(host: &Host, journal: &Shared, by: &str) -> Result<Undone, Failure> {
    let completed = {
        let mut journal = lock(journal);
        let story = journal.story();
        let completed = story.holds().is_some() || story.releasing;
        if completed && !story.releasing {
            journal.add(Record::Releasing { by: by.to_owned() })?;
        }
        completed
    };
    let undone = undo::all(host, journal)?;
    if completed && undone.stuck.is_empty() {
        let record = Record::Released {
            by: by.to_owned(),
            at: host.clock.seconds(),
        };
        lock(journal).add(record)?;
    }
    Ok(undone)
}
