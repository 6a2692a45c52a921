use std::io::{self, BufRead, Read, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// First words of a backup.
const FORMAT: &str = "virtengine-provider-backup";
/// Version of the archive's form: 2 has no store.
const VERSION: u32 = 2;
/// Longest head that is read.
const MAX_HEAD: u64 = 4096;
/// Longest path in an archive.
const MAX_PATH: u16 = 512;

/// Why a backup cannot be made or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// The archive is not what it should be.
    #[error("the backup cannot be used: {0}")]
    Content(String),
    /// The directory is in use.
    #[error("{} is not empty; a restore never overwrites: choose another --home or move it away", .0.display())]
    Used(PathBuf),
    /// The disk is too full.
    #[error("{0}")]
    Room(String),
}

/// The readable first line of a backup. It is authenticated with the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    format: String,
    version: u32,
    /// Version of the program that made it.
    pub program: String,
    /// When, RFC 3339.
    pub created_at: String,
    /// The chain that the store belongs to.
    pub chain_id: String,
    /// The contract.
    pub contract: String,
    /// The store is not in it, but in PostgreSQL: `pg_dump` saves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub postgres: bool,
}

impl Head {
    pub(super) fn new(chain_id: String, contract: String, created_at: String, postgres: bool) -> Self {
        Self {
            format: FORMAT.into(),
            // Whoever knows only the first form reads all that has a store.
            version: if postgres { VERSION } else { 1 },
            program: env!("CARGO_PKG_VERSION").into(),
            created_at,
            chain_id,
            contract,
            postgres,
        }
    }

    /// The line, with its end.
    pub(super) fn line(&self) -> Result<Vec<u8>, BackupError> {
        let mut line = serde_json::to_vec(self).map_err(|e| BackupError::Content(e.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads the line; gives its bytes as well.
    pub(super) fn read(input: &mut impl BufRead) -> Result<(Self, Vec<u8>), BackupError> {
        let mut line = Vec::new();
        let content = |what: &str| BackupError::Content(what.into());
        input
            .take(MAX_HEAD)
            .read_until(b'\n', &mut line)
            .map_err(|e| BackupError::Content(e.to_string()))?;
        let head: Self =
            serde_json::from_slice(&line).map_err(|_| content("it is no backup of virtengine-provider"))?;
        if head.format != FORMAT {
            return Err(content("it is no backup of virtengine-provider"));
        }
        if head.version > VERSION {
            let what = format!(
                "it was made by version {} in a newer form; restore it with that version or a later one",
                head.program
            );
            return Err(BackupError::Content(what));
        }
        Ok((head, line))
    }
}

/// Writes a file into the archive: length of the path, path, length, bytes.
pub(super) fn put(out: &mut impl Write, path: &str, size: u64, mut from: impl Read) -> io::Result<()> {
    let length = u16::try_from(path.len())
        .ok()
        .filter(|n| *n <= MAX_PATH)
        .ok_or_else(|| io::Error::other("a path is too long"))?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(path.as_bytes())?;
    out.write_all(&size.to_be_bytes())?;
    let copied = io::copy(&mut from, out)?;
    if copied != size {
        return Err(io::Error::other("it changed while it was being read"));
    }
    Ok(())
}

/// The end of the archive.
pub(super) fn end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&0u16.to_be_bytes())
}

/// Path and length of the next file; none at the end.
pub(super) fn next(input: &mut impl Read) -> io::Result<Option<(PathBuf, u64)>> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut length = [0; 2];
    input.read_exact(&mut length)?;
    let length = u16::from_be_bytes(length);
    if length == 0 {
        return Ok(None);
    }
    if length > MAX_PATH {
        return Err(bad("a path is too long"));
    }
    let mut path = vec![0; usize::from(length)];
    input.read_exact(&mut path)?;
    let path = String::from_utf8(path).map_err(|_| bad("a path is no text"))?;
    let path = PathBuf::from(path);
    if !inside(&path) {
        return Err(bad("a path leads out of the directory"));
    }
    let mut size = [0; 8];
    input.read_exact(&mut size)?;
    Ok(Some((path, u64::from_be_bytes(size))))
}

fn inside(path: &Path) -> bool {
    path.components().all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_through_and_no_path_leads_out() {
        let mut archive = Vec::new();
        put(&mut archive, "ca/ca.crt", 3, &b"abc"[..]).unwrap();
        put(&mut archive, "../evil", 0, &b""[..]).unwrap();
        end(&mut archive).unwrap();
        let mut input = archive.as_slice();
        assert_eq!(next(&mut input).unwrap(), Some((PathBuf::from("ca/ca.crt"), 3)));
        let mut content = [0; 3];
        input.read_exact(&mut content).unwrap();
        assert_eq!(&content, b"abc");
        assert!(next(&mut input).is_err());
        for (path, good) in [
            ("a", true),
            ("a/b", true),
            ("/a", false),
            ("a/../b", false),
            ("./a", false),
        ] {
            assert_eq!(inside(Path::new(path)), good, "{path}");
        }
        assert!(
            put(&mut Vec::new(), "a", 4, &b"abc"[..]).is_err(),
            "shorter than it was"
        );
    }

    #[test]
    fn a_newer_form_and_what_is_no_backup_are_refused_with_the_remedy() {
        let mut head = Head::new(
            "hpc-1".into(),
            "wasm1x".into(),
            "2026-01-01T00:00:00Z".into(),
            false,
        );
        let line = head.line().unwrap();
        assert_eq!(Head::read(&mut line.as_slice()).unwrap(), (head.clone(), line));
        head.version = VERSION + 1;
        let newer = Head::read(&mut head.line().unwrap().as_slice()).unwrap_err();
        assert!(newer.to_string().contains("a later one"), "{newer}");
        for bytes in [&b""[..], b"{}\n", b"SQLite format 3\0"] {
            assert!(Head::read(&mut &*bytes).is_err());
        }
    }
}
