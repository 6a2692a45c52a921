use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::KeyFileError;
use crate::files::{at, directory_of};

/// Opens a file with a secret, if nobody else can read or replace it.
pub(super) fn open_private(path: &Path) -> Result<File, KeyFileError> {
    let shown = || path.display().to_string();
    let file = File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => KeyFileError::Missing {
            path: shown(),
            dir: directory_of(path).display().to_string(),
        },
        _ => at("read", path)(e).into(),
    })?;
    // Looked up on the open file: a path could be exchanged between the look and the read.
    let meta = file.metadata().map_err(at("read", path))?;
    if !meta.is_file() {
        return Err(KeyFileError::NotAFile { path: shown() });
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Mode { path: shown(), mode });
    }
    let euid = rustix::process::geteuid().as_raw();
    if meta.uid() != euid {
        let dir = directory_of(path);
        let dir_owner = std::fs::metadata(dir).map_err(at("read", dir))?.uid();
        if euid != 0 || meta.uid() != dir_owner {
            return Err(KeyFileError::Owner {
                path: shown(),
                owner: meta.uid(),
                euid,
            });
        }
    }
    Ok(file)
}
