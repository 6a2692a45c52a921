//! A small file in which a probe remembers over restarts.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::files::{Durability, FileError, Replace, read_text, write};

/// More than any of them; a damaged one must not fill memory.
const LIMIT: u64 = 1 << 20;

/// Where a probe remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    path: PathBuf,
    writes: bool,
}

impl From<PathBuf> for Kept {
    fn from(path: PathBuf) -> Self {
        Self { path, writes: true }
    }
}

impl Kept {
    /// Reads and never writes: for those who look while the agent runs.
    #[must_use]
    pub fn read_only(path: PathBuf) -> Self {
        Self { path, writes: false }
    }

    /// Whether anything is written.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether the file is not there; false if that cannot be told.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.path.try_exists().is_ok_and(|there| !there)
    }

    /// What was kept; none if there is nothing, or nothing that can be read.
    #[must_use]
    pub fn load<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&read_text(&self.path, LIMIT).ok()?).ok()
    }

    /// Keeps `value`. Not synchronised: a power cut costs at most what was counted since the last writing.
    ///
    /// # Errors
    /// IO.
    pub fn save<T: Serialize>(&self, value: &T) -> Result<(), FileError> {
        if !self.writes {
            return Ok(());
        }
        let bytes = serde_json::to_vec(value).map_err(|e| crate::files::at("write", &self.path)(e.into()))?;
        write(&self.path, &bytes, 0o600, Replace::Yes, Durability::Atomic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_a_reader_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.json");
        let (kept, looked) = (Kept::from(path.clone()), Kept::read_only(path.clone()));
        assert_eq!(kept.load::<u32>(), None);
        kept.save(&7u32).unwrap();
        looked.save(&8u32).unwrap();
        assert_eq!((kept.load::<u32>(), looked.load::<u32>()), (Some(7), Some(7)));
        std::fs::write(path, "{").unwrap();
        assert_eq!(kept.load::<u32>(), None);
    }
}
