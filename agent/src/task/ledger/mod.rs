//! Every task that this node knows, and what completed ones have left on the host.

mod held;
mod lock;
mod release;
mod residue;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;

pub use held::Holding;
pub use lock::OwnerLock;
pub use residue::Residue;

use super::failure::Failure;
use super::journal::{Journal, Record, Shared, Story, load_all};
use super::owner::Owner;
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
}
