//! Ordinary files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::error::{Exit, Failure};

/// The whole file, if it has at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| Failure::file(path, &e))?;
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::file(path, &e))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        let message = format!("{}: larger than {limit} bytes", path.display());
        return Err(Failure::new(Exit::Failed, "file_too_large", message).remedy("name the right file"));
    }
    Ok(bytes)
}
