//! Every task that this node knows, and what completed ones have left on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use serde_json::Value;

use super::effect::{Effect, Seen, Trace};
use super::failure::Failure;
use super::handler::Owner;
use super::host::Host;
use super::journal::{Journal, JournalError, Record, Story, load_all};
use super::undo::{self, Undone};
use crate::files::FileError;

/// Tasks that a node remembers at most.
const LIMIT: usize = 4096;
/// A task is remembered so long after its expiry: the clock may be set back.
const REMEMBERED: u64 = 24 * 3600;

/// A journal that several look at.
pub type Shared = Arc<Mutex<Journal>>;

/// Locks a journal.
pub(super) fn lock(journal: &Shared) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every task that this node knows.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    journals: Mutex<BTreeMap<TaskId, Shared>>,
    busy: Mutex<BTreeSet<Owner>>,
}

/// What a completed task has left on the host.
#[derive(Debug, Clone)]
pub struct Holding {
    /// Under which name.
    pub owner: Owner,
    /// By which task.
    pub task_id: TaskId,
    /// UNIX seconds at which the task ended.
    pub since: u64,
    /// What remains, with its place in the task's journal.
    pub effects: Vec<(usize, Effect, Option<Trace>)>,
    /// What the task, or who looks after it, noted of it.
    pub facts: BTreeMap<String, Value>,
}

/// That a task works for an owner; given back when dropped.
#[derive(Debug)]
pub struct OwnerLock {
    ledger: Arc<Ledger>,
    owner: Owner,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        let mut busy = self.ledger.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.owner);
    }
}

impl Ledger {
    /// Reads all journals; those that are damaged by name and error.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn open(folder: PathBuf) -> Result<(Arc<Self>, Vec<JournalError>), FileError> {
        let (mut journals, mut damaged) = (BTreeMap::new(), Vec::new());
        for journal in load_all(&folder, true)? {
            match journal {
                Ok(journal) => {
                    let id = journal.story().task.task_id.clone();
                    journals.insert(id, Arc::new(Mutex::new(journal)));
                }
                Err(e) => damaged.push(e),
            }
        }
        let ledger = Self {
            folder,
            journals: Mutex::new(journals),
            busy: Mutex::default(),
        };
        Ok((Arc::new(ledger), damaged))
    }

    fn journals(&self) -> MutexGuard<'_, BTreeMap<TaskId, Shared>> {
        self.journals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's journal.
    #[must_use]
    pub fn find(&self, id: &TaskId) -> Option<Shared> {
        self.journals().get(id).cloned()
    }

    /// Every journal.
    #[must_use]
    pub fn all(&self) -> Vec<Shared> {
        self.journals().values().cloned().collect()
    }

    /// Writes a new task down.
    ///
    /// # Errors
    /// IO; too many tasks.
    pub fn take(&self, id: &TaskId, taken: Record) -> Result<Shared, Failure> {
        let mut journals = self.journals();
        if journals.len() >= LIMIT {
            let what = format!("the node has {LIMIT} tasks on record; submit fewer at a time");
            return Err(Failure::new(Code::ResourceBusy, what));
        }
        let journal = Arc::new(Mutex::new(Journal::create(&self.folder, id, taken)?));
        journals.insert(id.clone(), Arc::clone(&journal));
        Ok(journal)
    }

    /// Forgets tasks that hold nothing, of whose end the gateway knows, and that could not be begun any more.
    pub fn forget(&self, now: u64) {
        let over = |story: &Story| {
            let expiry = story.task.expires_at.seconds().0.saturating_add(REMEMBERED);
            story.heard && story.ended.is_some() && story.holds().is_none() && expiry < now
        };
        let gone: Vec<Shared> = {
            let mut journals = self.journals();
            let ids: Vec<TaskId> = journals
                .iter()
                .filter(|(_, j)| j.try_lock().is_ok_and(|j| over(j.story())))
                .map(|(id, _)| id.clone())
                .collect();
            ids.iter().filter_map(|id| journals.remove(id)).collect()
        };
        for journal in gone.into_iter().filter_map(Arc::into_inner) {
            let journal = journal.into_inner().unwrap_or_else(PoisonError::into_inner);
            if let Err(e) = journal.remove() {
                tracing::warn!("{e}");
            }
        }
    }

    /// What is held, of every owner of this kind; all kinds for the empty word.
    #[must_use]
    pub fn held(&self, kind: &str) -> Vec<Holding> {
        let mut held: Vec<Holding> = self
            .all()
            .iter()
            .filter_map(|j| holding(lock(j).story()))
            .filter(|h| kind.is_empty() || h.owner.kind() == kind)
            .collect();
        held.sort_by(|a, b| (&a.owner, a.since, &a.task_id).cmp(&(&b.owner, b.since, &b.task_id)));
        held
    }

    /// What this owner holds, newest first: mostly by one task.
    #[must_use]
    pub fn held_by(&self, owner: &Owner) -> Vec<Holding> {
        let mut held = self.held(owner.kind());
        held.retain(|h| h.owner == *owner);
        held.reverse();
        held
    }

    /// Lets one work for an owner; none while another does.
    #[must_use]
    pub fn lock_owner(self: &Arc<Self>, owner: &Owner) -> Option<OwnerLock> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(owner.clone()).then(|| OwnerLock {
            ledger: Arc::clone(self),
            owner: owner.clone(),
        })
    }

    /// Notes something of what an owner holds.
    ///
    /// # Errors
    /// IO; nothing is held.
    pub fn note(&self, owner: &Owner, name: &str, value: Value) -> Result<(), Failure> {
        let Some(holding) = self.held_by(owner).into_iter().next() else {
            return Err(Failure::failed(format!("{owner} holds nothing")));
        };
        let journal = self
            .find(&holding.task_id)
            .ok_or_else(|| Failure::failed(format!("{owner} holds nothing")))?;
        let record = Record::Fact {
            name: name.to_owned(),
            value,
        };
        Ok(lock(&journal).add(record)?)
    }

    /// Gives back all that an owner holds, newest first; whoever calls has the owner's lock. The same as undoing.
    ///
    /// # Errors
    /// IO. What could not be undone stands in the answer and stays held.
    pub(super) fn give_back(&self, host: &Host, owner: &Owner, by: &str) -> Result<Undone, Failure> {
        let mut all = Undone::default();
        for holding in self.held_by(owner) {
            let Some(journal) = self.find(&holding.task_id) else {
                continue;
            };
            let undone = undo::all(host, &journal)?;
            if undone.stuck.is_empty() {
                let record = Record::Released {
                    by: by.to_owned(),
                    at: host.clock.seconds(),
                };
                lock(&journal).add(record)?;
            }
            all.merge(undone);
        }
        Ok(all)
    }

    /// Gives back what the owner holds, for whoever looks after what is held.
    ///
    /// # Errors
    /// [`Code::ResourceBusy`] while a task works for the owner.
    pub fn release(self: &Arc<Self>, host: &Host, owner: &Owner, by: &str) -> Result<Undone, Failure> {
        let Some(_lock) = self.lock_owner(owner) else {
            let what = format!("a task works for {owner}");
            return Err(Failure::new(Code::ResourceBusy, what));
        };
        self.give_back(host, owner, by)
    }

    /// What of a holding is still there.
    ///
    /// # Errors
    /// If that cannot be seen.
    pub fn observe(&self, host: &Host, holding: &Holding) -> Result<Vec<(usize, Seen)>, Failure> {
        holding
            .effects
            .iter()
            .map(|(step, effect, trace)| {
                let seen = undo::observe(host, &holding.task_id, *step, effect, trace.as_ref())?;
                Ok((*step, seen))
            })
            .collect()
    }
}

fn holding(story: &Story) -> Option<Holding> {
    let owner = story.holds()?.clone();
    let remaining = story.steps.iter().enumerate().filter(|(_, s)| s.remains());
    Some(Holding {
        owner,
        task_id: story.task.task_id.clone(),
        since: story.ended.as_ref().map_or(story.taken_at, |e| e.finished_at),
        effects: remaining
            .map(|(i, s)| (i, s.effect.clone(), s.trace.clone()))
            .collect(),
        facts: story.facts.clone(),
    })
}
