use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hpc_schema::id::TaskId;

use super::fold::Story;
use super::record::{Record, line, parse};
use crate::fault;
use crate::files::{FileError, at, sync_directory_of};

/// Longest journal: a task has some dozens of effects.
const LIMIT: u64 = 8 << 20;
/// Beyond this nothing new is begun, so that there is room for undoing and for the end.
const FULL: u64 = 6 << 20;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// IO: nothing may be done that is not written down.
    #[error(transparent)]
    File(#[from] FileError),
    /// A record that is not whole, with others after it, or that cannot follow the one before.
    #[error("{}: line {line} is damaged; what the task did cannot be told from it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
    },
    /// More than a journal can be.
    #[error("{}: is longer than a journal can be; what the task did cannot be told from it", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
}

impl JournalError {
    /// The journal.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(e) => &e.path,
            Self::Damaged { path, .. } | Self::TooLong { path } => path,
        }
    }
}

impl From<JournalError> for crate::task::failure::Failure {
    fn from(e: JournalError) -> Self {
        Self::failed(e)
    }
}

/// The journal of one task.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    story: Story,
}

impl Journal {
    /// Begins one; `taken` is its first record.
    ///
    /// # Errors
    /// IO; a journal of this task that is there already.
    pub fn create(folder: &Path, id: &TaskId, taken: Record) -> Result<Self, JournalError> {
        let path = path_of(folder, id);
        let bytes = line(&taken).map_err(|e| at("write", &path)(e.into()))?;
        let damaged = JournalError::Damaged {
            path: path.clone(),
            line: 1,
        };
        let story = Story::begin(taken).ok_or(damaged)?;
        let mut file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(at("make", &path))?;
        fault::counted("task.journal");
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(at("write", &path))?;
        sync_directory_of(&path)?;
        fault::counted("task.journal");
        Ok(Self {
            path,
            file,
            length: length(&bytes),
            story,
        })
    }

    /// Reads one; none if its first record never got to the disk, so that nothing was begun. With `repair` the file then
    /// is removed, and a last record that was cut off is taken away: only whoever writes the journals may do so.
    ///
    /// # Errors
    /// IO, damaged.
    pub fn open(path: &Path, repair: bool) -> Result<Option<Self>, JournalError> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(repair)
            .open(path)
            .map_err(at("open", path))?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(LIMIT.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(at("read", path))?;
        if length(&bytes) > LIMIT {
            return Err(JournalError::TooLong {
                path: path.to_owned(),
            });
        }
        let damaged = |line| JournalError::Damaged {
            path: path.to_owned(),
            line,
        };
        let mut story: Option<Story> = None;
        let mut good = 0usize;
        let mut lines = bytes.split_inclusive(|b| *b == b'\n').enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            let record = line.strip_suffix(b"\n").and_then(parse);
            let taken = match (record, &mut story) {
                (Some(record), Some(story)) => story.add(record),
                (Some(record), none) => {
                    *none = Story::begin(record);
                    none.is_some()
                }
                (None, _) => false,
            };
            if !taken {
                // Only the last line can be one that a crash cut off.
                if lines.peek().is_some() {
                    return Err(damaged(number.saturating_add(1)));
                }
                break;
            }
            good = good.saturating_add(line.len());
        }
        let Some(story) = story else {
            if repair {
                std::fs::remove_file(path).map_err(at("remove", path))?;
            }
            return Ok(None);
        };
        let length = u64::try_from(good).unwrap_or(0);
        if repair && good < bytes.len() {
            file.set_len(length)
                .and_then(|()| file.sync_all())
                .map_err(at("write", path))?;
        }
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            length,
            story,
        }))
    }

    /// Adds a record; on the disk when this returns.
    ///
    /// # Errors
    /// IO; the journal is as before then.
    pub fn add(&mut self, record: Record) -> Result<(), JournalError> {
        let bytes = line(&record).map_err(|e| at("write", &self.path)(e.into()))?;
        let begins = matches!(
            record,
            Record::Intent { .. } | Record::Phase { .. } | Record::Fact { .. }
        );
        if begins && self.length.saturating_add(length(&bytes)) > FULL {
            let path = self.path.clone();
            return Err(JournalError::TooLong { path });
        }
        fault::counted("task.journal");
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(e) = written {
            // A half line must not stand before a whole one.
            self.file.set_len(self.length).ok();
            return Err(at("write", &self.path)(e).into());
        }
        fault::counted("task.journal");
        self.length = self.length.saturating_add(length(&bytes));
        self.story.add(record);
        Ok(())
    }

    /// What it says.
    #[must_use]
    pub fn story(&self) -> &Story {
        &self.story
    }

    /// Forgets the task.
    ///
    /// # Errors
    /// IO.
    pub fn remove(self) -> Result<(), JournalError> {
        std::fs::remove_file(&self.path).map_err(at("remove", &self.path))?;
        sync_directory_of(&self.path)?;
        Ok(())
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn path_of(folder: &Path, id: &TaskId) -> PathBuf {
    folder.join(format!("{id}.log"))
}

/// Every journal of a folder, oldest task first; damaged ones by their error.
///
/// # Errors
/// If the folder cannot be read.
pub fn load_all(folder: &Path, repair: bool) -> Result<Vec<Result<Journal, JournalError>>, FileError> {
    let entries = std::fs::read_dir(folder).map_err(at("read", folder))?;
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(at("read", folder))?.path();
        if path.extension().is_some_and(|e| e == "log") {
            match Journal::open(&path, repair) {
                Ok(Some(journal)) => all.push(Ok(journal)),
                Ok(None) => {}
                Err(e) => all.push(Err(e)),
            }
        }
    }
    all.sort_by_key(|j| {
        let story = j.as_ref().ok().map(Journal::story);
        story.map(|s| (s.taken_at, s.task.task_id.clone()))
    });
    Ok(all)
}

/// A journal that several look at.
pub type Shared = Arc<Mutex<Journal>>;

/// Locks a journal.
pub(in crate::task) fn lock(journal: &Shared) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}
