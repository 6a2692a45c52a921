//! Every task that this node knows, and what completed ones have left on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use serde_json::Value;

use super::effect::{Effect, Seen, Trace};
use super::failure::Failure;
use super::host::Host;
use super::journal::{Journal, Record, Shared, Story, load_all, lock};
use super::owner::Owner;
use super::undo::{self, Undone};
use crate::files::FileError;

/// Tasks that a node remembers at most.
const LIMIT: usize = 4096;
/// A task is remembered so long after its expiry: the clock may be set back.
const REMEMBERED: u64 = 24 * 3600;

/// Every task that this node knows.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    journals: Mutex<BTreeMap<TaskId, Shared>>,
    busy: Mutex<BTreeSet<Owner>>,
    damaged: BTreeMap<String, String>,
}

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
    /// Reads all journals.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn open(folder: PathBuf) -> Result<Arc<Self>, FileError> {
        Self::with(folder, true)
    }

    /// The same for whoever only looks: nothing is repaired.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn read(folder: PathBuf) -> Result<Arc<Self>, FileError> {
        Self::with(folder, false)
    }

    fn with(folder: PathBuf, repair: bool) -> Result<Arc<Self>, FileError> {
        let (mut journals, mut damaged) = (BTreeMap::new(), BTreeMap::new());
        for journal in load_all(&folder, repair)? {
            match journal {
                Ok(journal) => {
                    let id = journal.story().task.task_id.clone();
                    journals.insert(id, Arc::new(Mutex::new(journal)));
                }
                Err(e) => {
                    tracing::error!("{e}");
                    let name = e.path().file_stem().unwrap_or_default();
                    damaged.insert(name.to_string_lossy().into_owned(), e.to_string());
                }
            }
        }
        let ledger = Self {
            folder,
            journals: Mutex::new(journals),
            busy: Mutex::default(),
            damaged,
        };
        Ok(Arc::new(ledger))
    }

    fn journals(&self) -> MutexGuard<'_, BTreeMap<TaskId, Shared>> {
        self.journals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task's journal.
    #[must_use]
    pub fn find(&self, id: &TaskId) -> Option<Shared> {
        self.journals().get(id).cloned()
    }

    /// Tasks of whose journal nothing can be told, and why.
    #[must_use]
    pub fn damaged(&self) -> &BTreeMap<String, String> {
        &self.damaged
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

    /// Forgets tasks of which nothing is left, of whose end the gateway knows, and that could not be begun any more.
    pub fn forget(&self, now: u64) {
        let over = |story: &Story| {
            let expiry = story.task.expires_at.seconds().0.saturating_add(REMEMBERED);
            story.heard && story.ended.is_some() && !story.remains() && expiry < now
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

    /// Facts of what owners of this kind have, given back or not, and of what tasks are making once they have noted
    /// `admitted`.
    #[must_use]
    pub fn promised(&self, kind: &str, admitted: &str) -> Vec<BTreeMap<String, Value>> {
        let of = |j: &Shared| {
            let journal = lock(j);
            let story = journal.story();
            let counts = match story.ended {
                None => story.facts.contains_key(admitted),
                Some(_) => story.remains() && !story.released,
            };
            let is_kind = story.owner.as_ref().is_some_and(|o| o.kind() == kind);
            (counts && is_kind).then(|| story.facts.clone())
        };
        self.all().iter().filter_map(of).collect()
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
            all.merge(take_back(host, &journal, by)?);
        }
        Ok(all)
    }

    /// Gives back what the owner holds, for whoever looks after what is held.
    ///
    /// # Errors
    /// [`Code::ResourceBusy`] while a task works for the owner.
    pub fn release(self: &Arc<Self>, host: &Host, owner: &Owner, by: &str) -> Result<Undone, Failure> {
        let Some(_lock) = self.lock_owner(owner) else {
            return Err(busy(owner));
        };
        self.give_back(host, owner, by)
    }

    /// What is left that nobody has any more.
    #[must_use]
    pub fn residues(&self) -> Vec<Residue> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let residue = |story: &Story| {
            // Whoever works for the owner may be giving it back right now.
            let busy = story.owner.as_ref().is_some_and(|o| busy.contains(o));
            let ended = story.ended.as_ref().filter(|_| story.is_residue() && !busy)?;
            let left = |(n, s): (usize, &super::journal::Step)| {
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
    /// IO; [`Code::ResourceBusy`] while a task works for its owner.
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

    /// Ids of users that tasks have made and that are not given back, whether or not the host still has the users.
    #[must_use]
    pub fn user_ids(&self) -> BTreeSet<u32> {
        let ids = |j: &Shared| -> Vec<u32> {
            let journal = lock(j);
            let story = journal.story();
            let user = |s: &super::journal::Step| match &s.effect {
                Effect::User(u) if s.remains() && !story.released => Some(u.uid),
                _ => None,
            };
            story.steps.iter().filter_map(user).collect()
        };
        self.all().iter().flat_map(ids).collect()
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

fn busy(owner: &Owner) -> Failure {
    Failure::new(Code::ResourceBusy, format!("a task works for {owner}"))
}

/// Undoes what a task has left; a completed one then has given it back. Whoever calls has the owner's lock.
fn take_back(host: &Host, journal: &Shared, by: &str) -> Result<Undone, Failure> {
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
