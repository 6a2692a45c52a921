//! The committed application state, as one read transaction sees it.

use std::ops::Bound;
use std::sync::OnceLock;

use redb::{AccessGuard, ReadOnlyTable};

use super::{Entries, Entry, Kv};

/// A row as the table gives it.
type Pair<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

/// The state table of one database snapshot.
///
/// [`Kv`] cannot fail, since `cosmwasm_std::Storage` cannot: the first read error is kept and must be asked
/// for with [`Disk::failure`] before anything that was read is committed or answered.
pub(crate) struct Disk {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    failure: OnceLock<String>,
}

impl Disk {
    pub(crate) fn new(table: ReadOnlyTable<&'static [u8], &'static [u8]>) -> Self {
        Self {
            table,
            failure: OnceLock::new(),
        }
    }

    /// The first error that a read met, if any did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn note(&self, error: &redb::StorageError) {
        // Only the first error is of interest.
        if self.failure.set(error.to_string()).is_err() {
            tracing::debug!(%error, "another read error of a snapshot that has already failed");
        }
    }
}

impl Kv for Disk {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.table.get(key) {
            Ok(value) => value.map(|v| v.value().to_vec()),
            Err(error) => {
                self.note(&error);
                None
            }
        }
    }

    fn range<'a>(&'a self, start: &[u8], end: Option<&[u8]>, reverse: bool) -> Entries<'a> {
        if end.is_some_and(|end| end <= start) {
            return Box::new(std::iter::empty());
        }
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let range = match self.table.range::<&[u8]>((Bound::Included(start), upper)) {
            Ok(range) => range,
            Err(error) => {
                self.note(&error);
                return Box::new(std::iter::empty());
            }
        };
        let entry = |item: Result<Pair<'_>, redb::StorageError>| -> Option<Entry> {
            match item {
                Ok((key, value)) => Some((key.value().to_vec(), value.value().to_vec())),
                Err(error) => {
                    self.note(&error);
                    None
                }
            }
        };
        if reverse {
            Box::new(range.rev().map_while(entry))
        } else {
            Box::new(range.map_while(entry))
        }
    }
}
