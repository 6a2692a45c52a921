//! Two keys for a while: the present one, and the one to come in `agent.key.next`. Which of them counts, the
//! registration on disk says; the file that it names is always there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hpc_schema::key::AgentKey;

use super::file::{load, read};
use super::generate::{generate_at, write_public};
use super::{KeyFileError, SharedSigner, Store};
use crate::files::{Replace, at, sync_directory_of};

/// `agent.key.next` beside `agent.key`.
fn next_path(key_path: &Path) -> PathBuf {
    let mut name = key_path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// `agent.pub` beside `agent.key`.
fn public_path(key_path: &Path) -> PathBuf {
    key_path.with_extension("pub")
}

/// `agent.next.pub`: what the provider makes the token for.
fn next_public_path(key_path: &Path) -> PathBuf {
    key_path.with_extension("next.pub")
}

/// The key to come; made now if there is none, in `store`, by default where the present one lives.
///
/// # Errors
/// See [`KeyFileError`].
pub fn prepare_next(key_path: &Path, store: Option<Store>) -> Result<SharedSigner, KeyFileError> {
    match load_next(key_path)? {
        Some(key) => Ok(key),
        None => {
            let store = match store {
                Some(store) => store,
                None => read(key_path)?.store(),
            };
            let next = next_path(key_path);
            generate_at(&next, &next_public_path(key_path), Replace::Never, &store)?;
            load(&next)
        }
    }
}

/// The key to come, if one was made.
///
/// # Errors
/// See [`KeyFileError`].
pub fn load_next(key_path: &Path) -> Result<Option<SharedSigner>, KeyFileError> {
    match load(&next_path(key_path)) {
        Ok(key) => Ok(Some(key)),
        Err(KeyFileError::Missing { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Gives the key to come up.
///
/// # Errors
/// IO.
pub fn forget_next(key_path: &Path) -> Result<(), KeyFileError> {
    for path in [next_path(key_path), next_public_path(key_path)] {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at("remove", &path)(e).into()),
            _ => {}
        }
    }
    Ok(())
}

/// Puts the key to come in the place of the present one, in one step. Done before: nothing happens.
///
/// # Errors
/// IO.
pub fn promote(key_path: &Path, registered: &AgentKey) -> Result<(), KeyFileError> {
    let next = next_path(key_path);
    match read(&next) {
        Ok(key) if key.public() == *registered => {}
        Ok(_) | Err(KeyFileError::Missing { .. }) => return Ok(()),
        Err(e) => return Err(e),
    }
    match fs::rename(&next, key_path) {
        // Another process was faster.
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at("rename", &next)(e).into()),
        _ => {}
    }
    sync_directory_of(key_path)?;
    write_public(&public_path(key_path), registered)?;
    fs::remove_file(next_public_path(key_path)).ok();
    Ok(())
}

/// The key that is registered: the present one, or, when a rotation was cut off after it had succeeded, the one to
/// come, which then takes its place.
///
/// # Errors
/// See [`KeyFileError`]; [`KeyFileError::NotRegistered`] if neither is the one.
pub fn load_registered(key_path: &Path, registered: &AgentKey) -> Result<SharedSigner, KeyFileError> {
    let present = read(key_path).map(|k| k.public());
    if matches!(&present, Ok(public) if public == registered) {
        return load(key_path);
    }
    let next = next_path(key_path);
    if matches!(read(&next), Ok(next) if next.public() == *registered) {
        return match promote(key_path, registered) {
            Ok(()) => load(key_path),
            // The service may not be allowed to write there; it serves where it is.
            Err(_) => load(&next),
        };
    }
    Err(KeyFileError::NotRegistered {
        path: key_path.display().to_string(),
        present: present?.to_base64(),
        registered: registered.to_base64(),
    })
}

/// The keys on disk that are not `known`: after a rotation or a new registration by another process one of them
/// counts. What cannot be read is left out.
#[must_use]
pub fn others(key_path: &Path, known: &AgentKey) -> Vec<SharedSigner> {
    [next_path(key_path), key_path.to_owned()]
        .iter()
        .filter_map(|path| read(path).ok())
        .filter(|stored| stored.public() != *known)
        .filter_map(|stored| stored.open().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::generate;

    #[test]
    fn whichever_key_the_registration_names_is_found_at_every_step() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        let path = made.key_path;
        let next = prepare_next(&path, None).unwrap().public();
        assert_eq!(prepare_next(&path, None).unwrap().public(), next);
        // Prepared, not registered: the present key counts, and stays.
        assert_eq!(
            load_registered(&path, &made.public).unwrap().public(),
            made.public
        );
        promote(&path, &made.public).unwrap();
        assert_eq!(load(&path).unwrap().public(), made.public);
        assert_eq!(others(&path, &made.public).len(), 1);
        // Registered, then cut off.
        assert_eq!(load_registered(&path, &next).unwrap().public(), next);
        assert_eq!(load(&path).unwrap().public(), next);
        let line = fs::read_to_string(dir.path().join("agent.pub")).unwrap();
        assert_eq!(line, format!("{next}\n"));
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "agent.key and agent.pub alone");
        // Once more: nothing to do.
        promote(&path, &next).unwrap();
        let e = load_registered(&path, &made.public).unwrap_err();
        assert!(matches!(e, KeyFileError::NotRegistered { .. }), "{e}");
    }

    #[test]
    fn a_rotation_can_be_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        prepare_next(&made.key_path, None).unwrap();
        forget_next(&made.key_path).unwrap();
        forget_next(&made.key_path).unwrap();
        assert!(load_next(&made.key_path).unwrap().is_none());
        assert_eq!(load(&made.key_path).unwrap().public(), made.public);
    }
}
