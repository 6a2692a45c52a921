use std::path::Path;

use super::file::read;
use super::{KeyFileError, Place, Store};
use crate::files::{Durability, Replace, write};

/// Moves the key to another place; it stays the same key, so the node stays registered. One step: a crash leaves the
/// former file or the new one.
///
/// # Errors
/// See [`KeyFileError`]; [`KeyFileError::Immovable`] to or from an HSM.
pub fn migrate(path: &Path, to: &Store) -> Result<Place, KeyFileError> {
    let present = read(path)?;
    let public = present.public();
    let moved = present.moved(to)?.ok_or(KeyFileError::Immovable)?;
    // Sealing has unsealed once; this is what a mistake in between would cost.
    if moved.public() != public {
        return Err(KeyFileError::Device("another key came out".into()));
    }
    let text = moved.to_text()?;
    write(path, text.as_bytes(), 0o600, Replace::Yes, Durability::Synced)?;
    Ok(moved.place())
}
