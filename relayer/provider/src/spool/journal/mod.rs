//! The intake journal: what SQLite has not taken in yet, on disk before it is answered.
//!
//! Two files that are written from their beginning again and again: reports of a group are appended with one sync of the
//! disk, and what SQLite has committed needs its place no more. Each group has a number; up to which SQLite
//! holds all of them stands in the very transaction that took them in (table `intake_journal`), so that a start takes in the
//! rest and nothing twice.

mod draft;
mod entry;
mod segment;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) use draft::Draft;
pub(super) use entry::read_all;
use segment::Segment;

/// From so many bytes on groups go to the other file, once SQLite holds what is in it.
const TURN: u64 = 1 << 20;
/// One of the files, in the store's folder.
pub const NAME: &str = "intake-0.journal";
const NAMES: [&str; 2] = [NAME, "intake-1.journal"];

/// Reports that were acknowledged together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Rises by one with each group.
    pub(super) number: u64,
    /// As [`entry::put`] wrote them.
    pub(super) entries: Vec<u8>,
}

/// The groups that SQLite has committed, as a number: all up to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Applied(Arc<AtomicU64>);

impl Applied {
    pub(super) fn set(&self, number: u64) {
        self.0.fetch_max(number, Ordering::Release);
    }

    fn covers(&self, number: u64) -> bool {
        number <= self.0.load(Ordering::Acquire)
    }
}

/// The journal, open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    active: Segment,
    other: Segment,
    next: u64,
    applied: Applied,
}

impl Journal {
    /// Opens both files in `dir`, makes those that are missing, and gives what they hold above `applied`, in its order.
    ///
    /// # Errors
    /// If a file cannot be read or made.
    pub(super) fn open(dir: &Path, applied: u64) -> io::Result<(Self, Vec<Group>)> {
        let [first, second] = paths(dir);
        let mut segments = [Segment::open(first)?, Segment::open(second)?];
        // That the files are there must last as well.
        std::fs::File::open(dir)?.sync_all()?;
        let mut groups = Vec::new();
        for segment in &mut segments {
            groups.append(&mut segment.read()?);
        }
        let highest = groups.iter().map(|g| g.number).max().unwrap_or(0);
        groups.retain(|g| g.number > applied);
        groups.sort_unstable_by_key(|g| g.number);
        let [mut active, mut other] = segments;
        if other.last() > active.last() {
            std::mem::swap(&mut active, &mut other);
        }
        let state = Applied::default();
        state.set(applied);
        let journal = Self {
            active,
            other,
            next: highest.max(applied).saturating_add(1),
            applied: state,
        };
        Ok((journal, groups))
    }

    /// What SQLite holds, for whoever takes it in.
    pub(super) fn applied(&self) -> Applied {
        self.applied.clone()
    }

    /// Whether the files hold so much that the database should take it in at once.
    pub(super) fn is_filling(&self) -> bool {
        let fills = |of: &Segment| of.len() > segment::MOST / 2 && !self.applied.covers(of.last());
        fills(&self.active) || fills(&self.other)
    }

    /// Appends a group; durable when this returns, with its number.
    ///
    /// # Errors
    /// What the file system says; then the group counts as not written. [`io::ErrorKind::StorageFull`] if there is no room
    /// before SQLite has taken in more.
    pub(super) fn write(&mut self, group: &mut Draft) -> io::Result<u64> {
        if self.applied.covers(self.active.last()) {
            self.active.rewind();
        } else if self.active.len() >= TURN && self.applied.covers(self.other.last()) {
            std::mem::swap(&mut self.active, &mut self.other);
            self.active.rewind();
        }
        let number = self.next;
        // Of one that fails it is unknown what is on the disk: its number is nobody else's.
        self.next = number.saturating_add(1);
        self.active.append(number, group)?;
        Ok(number)
    }
}

/// What lies in the files of `dir` above `applied`, of a daemon that may be running, as one such file; nothing is changed.
///
/// # Errors
/// If a file is there and cannot be read.
pub(super) fn unapplied(dir: &Path, applied: u64) -> io::Result<Vec<u8>> {
    let mut groups = Vec::new();
    for path in paths(dir) {
        groups.append(&mut segment::read_file(&path)?);
    }
    groups.retain(|g| g.number > applied);
    groups.sort_unstable_by_key(|g| g.number);
    let mut bytes = Vec::new();
    for g in &groups {
        bytes.extend_from_slice(Draft::of(&g.entries).seal(g.number)?);
    }
    Ok(bytes)
}

fn paths(dir: &Path) -> [PathBuf; 2] {
    NAMES.map(|name| dir.join(name))
}

#[cfg(test)]
mod tests;
