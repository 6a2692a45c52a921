use std::path::Path;

use super::file::read;
use super::lock::locked;
use super::rotation::next_path;
use super::stored::Stored;
use super::{KeyFileError, Place, Store};
use crate::files::{Durability, Replace, write};

/// Moves the key to another place; it stays the same key, so the node stays registered. One step: a crash leaves the
/// former file or the new one.
///
/// # Errors
/// See [`KeyFileError`]; [`KeyFileError::Immovable`] to or from an HSM, [`KeyFileError::RotationUnderWay`] with a key to
/// come.
pub fn migrate(path: &Path, to: &Store) -> Result<Place, KeyFileError> {
    // Devices take seconds: no rotation may begin or end meanwhile.
    let _lock = locked(path)?;
    let next = next_path(path);
    if next.symlink_metadata().is_ok() {
        return Err(KeyFileError::RotationUnderWay {
            path: next.display().to_string(),
        });
    }
    let present = read(path)?;
    let public = present.public();
    let moved = present.moved(to)?.ok_or(KeyFileError::Immovable)?;
    // Sealing has unsealed once; this is what a mistake in between would cost.
    if moved.public() != public {
        return Err(KeyFileError::Device("another key came out".into()));
    }
    put(path, &moved)?;
    Ok(moved.place())
}

/// Writes the same key over itself, and over no other.
fn put(path: &Path, moved: &Stored) -> Result<(), KeyFileError> {
    let text = moved.to_text()?;
    if read(path)?.public() != moved.public() {
        return Err(KeyFileError::Changed {
            path: path.display().to_string(),
        });
    }
    write(path, text.as_bytes(), 0o600, Replace::Yes, Durability::Synced)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::lock::lock_path;
    use crate::key::{forget_next, generate, load, prepare_next, promote};
    use crate::state::Lock;

    #[test]
    fn a_key_is_not_moved_while_a_rotation_is_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = generate(dir.path(), false).unwrap().key_path;
        prepare_next(&path, None).unwrap();
        let e = migrate(&path, &Store::File).unwrap_err();
        assert!(
            matches!(e, KeyFileError::RotationUnderWay { .. }) && e.to_string().contains("--abandon"),
            "{e}"
        );
        forget_next(&path, || Ok(None)).unwrap();
        assert_eq!(migrate(&path, &Store::File).unwrap(), Place::File);
    }

    #[test]
    fn no_rotation_begins_or_ends_and_nothing_else_is_moved_while_a_key_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = generate(dir.path(), false).unwrap().key_path;
        let busy = |result: Result<(), KeyFileError>| {
            let e = result.unwrap_err();
            assert!(matches!(e, KeyFileError::Busy { .. }), "{e}");
        };
        let held = Lock::take_at(&lock_path(&path)).unwrap().unwrap();
        busy(migrate(&path, &Store::File).map(drop));
        busy(prepare_next(&path, None).map(drop));
        drop(held);
        let next = prepare_next(&path, None).unwrap().public();
        let held = Lock::take_at(&lock_path(&path)).unwrap().unwrap();
        busy(promote(&path, &next));
        assert_ne!(load(&path).unwrap().public(), next);
        drop(held);
        promote(&path, &next).unwrap();
        assert_eq!(load(&path).unwrap().public(), next);
    }

    #[test]
    fn a_key_that_was_made_meanwhile_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = generate(dir.path(), false).unwrap().key_path;
        let moved = read(&path).unwrap();
        put(&path, &moved).unwrap();
        let new = generate(dir.path(), true).unwrap().public;
        let e = put(&path, &moved).unwrap_err();
        assert!(matches!(e, KeyFileError::Changed { .. }), "{e}");
        assert_eq!(load(&path).unwrap().public(), new);
    }
}
