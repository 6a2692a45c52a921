//! What this node has refused: a result that was signed once stands for good, whatever comes under its hash afterwards.
//! One append-only file, a line a refusal, on the disk before the word is signed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::task::{TaskHash, TaskOutcome};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::journal::{line, parse};
use super::saga::detail;
use crate::files::{Durability, FileError, Replace, at, write};

/// Refusals that a node remembers at most; beyond, it says nothing, and the gateway delivers again.
const LIMIT: usize = 4096;
/// More than the file can have: a refusal is below 2 KiB.
const BYTES: u64 = 64 << 20;

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused {
    /// The task.
    pub task_id: TaskId,
    /// Its hash, hex.
    pub hash: String,
    /// How it ended.
    pub outcome: TaskOutcome,
    /// The code.
    pub code: String,
    /// For people.
    pub detail: String,
    /// UNIX seconds.
    pub at: u64,
    /// UNIX seconds after which no task of this hash can be begun.
    pub until: u64,
}

impl Refused {
    /// Of a task that is refused now.
    #[must_use]
    pub(super) fn new(task_id: &TaskId, hash: TaskHash, failure: &Failure, at: u64, until: u64) -> Self {
        Self {
            task_id: task_id.clone(),
            hash: hash.to_hex(),
            outcome: match failure.code {
                Code::TaskExpired => TaskOutcome::Expired,
                Code::TaskCancelled => TaskOutcome::Cancelled,
                _ => TaskOutcome::Failed,
            },
            code: failure.code.as_str().to_owned(),
            detail: detail(&failure.detail),
            at,
            until,
        }
    }
}

/// Every refusal that counts.
#[derive(Debug)]
pub(super) struct Refusals {
    path: PathBuf,
    file: File,
    known: BTreeMap<String, Refused>,
}

impl Refusals {
    /// Reads them; those whose time is over are forgotten.
    ///
    /// # Errors
    /// IO.
    pub(super) fn open(path: &Path, now: u64) -> Result<Self, FileError> {
        let bytes = match std::fs::metadata(path) {
            Ok(meta) if meta.len() > BYTES => {
                let what = "is longer than it can be; move it away";
                return Err(at("read", path)(std::io::Error::other(what)));
            }
            Ok(_) => std::fs::read(path).map_err(at("read", path))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(at("read", path)(e)),
        };
        let mut known = BTreeMap::new();
        for line in bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            match parse::<Refused>(line) {
                Some(refused) => {
                    known.insert(refused.hash.clone(), refused);
                }
                // Cut off by a crash: what it was to say was not said.
                None => tracing::warn!("{}: a damaged line is passed over", path.display()),
            }
        }
        known.retain(|_, r| r.until >= now);
        let file = rewritten(path, &known)?;
        let path = path.to_owned();
        Ok(Self { path, file, known })
    }

    /// What was said of a task of this hash.
    #[must_use]
    pub(super) fn find(&self, hash: &str) -> Option<&Refused> {
        self.known.get(hash)
    }

    /// Writes one down; on the disk when this returns.
    ///
    /// # Errors
    /// IO; too many.
    pub(super) fn add(&mut self, refused: Refused) -> Result<(), Failure> {
        if self.known.len() >= LIMIT {
            self.known.retain(|_, r| r.until >= refused.at);
            if self.known.len() >= LIMIT {
                let what = format!("{LIMIT} refusals are remembered");
                return Err(Failure::new(Code::ResourceBusy, what));
            }
            self.file = rewritten(&self.path, &self.known)?;
        }
        let failed = at("write", &self.path);
        let bytes = line(&refused).map_err(Failure::failed)?;
        let length = self.file.metadata().map(|m| m.len());
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(e) = written {
            // A half line must not stand before a whole one.
            if let Ok(length) = length {
                self.file.set_len(length).ok();
            }
            return Err(failed(e).into());
        }
        self.known.insert(refused.hash.clone(), refused);
        Ok(())
    }
}

fn rewritten(path: &Path, known: &BTreeMap<String, Refused>) -> Result<File, FileError> {
    let mut all = Vec::new();
    for refused in known.values() {
        all.extend(line(refused).map_err(|e| at("write", path)(e.into()))?);
    }
    write(path, &all, 0o600, Replace::Yes, Durability::Synced)?;
    OpenOptions::new()
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(at("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(n: u64, until: u64) -> Refused {
        let id = format!("task-{n}").parse().unwrap();
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&n.to_le_bytes());
        let failure = Failure::new(Code::PolicyDenied, "no");
        Refused::new(&id, TaskHash(hash), &failure, 10, until)
    }

    #[test]
    fn refusals_outlive_a_restart_and_a_line_that_was_cut_off_and_end_with_their_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("refusals.log");
        let mut all = Refusals::open(&path, 0).unwrap();
        all.add(refused(1, 100)).unwrap();
        all.add(refused(2, 200)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(b"0123456789abcdef {\"half");
        std::fs::write(&path, bytes).unwrap();
        let all = Refusals::open(&path, 150).unwrap();
        assert_eq!(all.find(&refused(1, 0).hash), None);
        assert_eq!(all.find(&refused(2, 0).hash), Some(&refused(2, 200)));
    }

    #[test]
    fn too_many_are_not_said_and_old_ones_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = Refusals::open(&dir.path().join("r"), 0).unwrap();
        for n in 0..4096 {
            all.known.insert(refused(n, 5).hash, refused(n, 100));
        }
        assert_eq!(all.add(refused(9999, 100)).unwrap_err().code, Code::ResourceBusy);
        all.known.values_mut().for_each(|r| r.until = 5);
        all.add(refused(9999, 100)).unwrap();
        assert_eq!(all.known.len(), 1);
    }
}
