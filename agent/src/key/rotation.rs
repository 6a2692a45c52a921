//! Two keys for a while: the present one, and the one to come in `agent.key.next`. Which of them counts, the
//! registration on disk says; the file that it names is always there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hpc_schema::key::AgentKey;

use super::file::{load, read};
use super::generate::{generate_at, write_public};
use super::lock::locked;
use super::{KeyFileError, SharedSigner, Store};
use crate::files::{FileError, Replace, at, sync_directory_of};

/// `agent.key.next` beside `agent.key`.
pub(super) fn next_path(key_path: &Path) -> PathBuf {
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
/// See [`KeyFileError`]; [`KeyFileError::OtherStore`] if there is one in another place than the named one.
pub fn prepare_next(key_path: &Path, store: Option<Store>) -> Result<SharedSigner, KeyFileError> {
    let _lock = locked(key_path)?;
    let next = next_path(key_path);
    match (read(&next), store) {
        (Ok(there), Some(store)) if there.store() != store => Err(KeyFileError::OtherStore {
            path: next.display().to_string(),
            place: there.place().to_string(),
        }),
        (Ok(there), _) => there.open(),
        (Err(KeyFileError::Missing { .. }), store) => {
            let store = match store {
                Some(store) => store,
                None => read(key_path)?.store(),
            };
            generate_at(&next, &next_public_path(key_path), Replace::Never, &store)?;
            load(&next)
        }
        (Err(e), _) => Err(e),
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

/// Gives the key to come up, unless it is the registered one: `registered` is asked at the last moment, as a running agent may
/// have taken a rotation over that was cut off.
///
/// # Errors
/// IO; [`KeyFileError::NextRegistered`], [`KeyFileError::Busy`].
pub fn forget_next(
    key_path: &Path,
    registered: impl FnOnce() -> Result<Option<AgentKey>, FileError>,
) -> Result<(), KeyFileError> {
    let _lock = locked(key_path)?;
    let next = next_path(key_path);
    if let Some(registered) = registered()?
        && holds(&next, &registered)
    {
        return Err(KeyFileError::NextRegistered {
            path: next.display().to_string(),
        });
    }
    for path in [next, next_public_path(key_path)] {
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
    let waits = || match read(&next) {
        Ok(key) => Ok(key.public() == *registered),
        Err(KeyFileError::Missing { .. }) => Ok(false),
        Err(e) => Err(e),
    };
    if !waits()? {
        return Ok(());
    }
    let _lock = locked(key_path)?;
    // Another process may have been faster, and another rotation have begun.
    if !waits()? {
        return Ok(());
    }
    match fs::rename(&next, key_path) {
        // It was removed by hand.
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
    if holds(&next, registered) {
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

/// Whether the registered key is on the disk, as the present one or the one to come.
#[must_use]
pub fn is_kept(key_path: &Path, registered: &AgentKey) -> bool {
    holds(key_path, registered) || holds(&next_path(key_path), registered)
}

fn holds(path: &Path, key: &AgentKey) -> bool {
    read(path).is_ok_and(|stored| stored.public() == *key)
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
    use crate::key::{TpmOptions, generate};

    #[test]
    fn whichever_key_the_registration_names_is_found_at_every_step() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        let path = made.key_path;
        let next = prepare_next(&path, None).unwrap().public();
        assert_eq!(prepare_next(&path, None).unwrap().public(), next);
        assert_eq!(prepare_next(&path, Some(Store::File)).unwrap().public(), next);
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
        assert_eq!(names, 3, "agent.key, its lock and agent.pub alone");
        // Once more: nothing to do.
        promote(&path, &next).unwrap();
        let e = load_registered(&path, &made.public).unwrap_err();
        assert!(matches!(e, KeyFileError::NotRegistered { .. }), "{e}");
    }

    #[test]
    fn a_key_to_come_that_lives_elsewhere_than_the_named_place_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = generate(dir.path(), false).unwrap().key_path;
        let next = prepare_next(&path, None).unwrap().public();
        let tpm = Store::Tpm(TpmOptions {
            tcti: TpmOptions::DEFAULT_TCTI.to_owned(),
            parent: None,
        });
        let e = prepare_next(&path, Some(tpm)).unwrap_err();
        let said = e.to_string();
        assert!(matches!(e, KeyFileError::OtherStore { .. }), "{said}");
        assert!(
            said.contains("in its file") && said.contains("--abandon"),
            "{said}"
        );
        assert_eq!(load_next(&path).unwrap().unwrap().public(), next);
    }

    #[test]
    fn a_rotation_can_be_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        prepare_next(&made.key_path, None).unwrap();
        for registered in [Some(made.public), None] {
            forget_next(&made.key_path, || Ok(registered)).unwrap();
        }
        assert!(load_next(&made.key_path).unwrap().is_none());
        assert_eq!(load(&made.key_path).unwrap().public(), made.public);
    }

    #[test]
    fn a_key_that_counts_by_now_or_that_another_process_puts_in_its_place_is_not_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let made = generate(dir.path(), false).unwrap();
        let path = made.key_path;
        let next = prepare_next(&path, None).unwrap().public();
        let e = forget_next(&path, || Ok(Some(next))).unwrap_err();
        assert!(matches!(e, KeyFileError::NextRegistered { .. }), "{e}");
        assert!(is_kept(&path, &next) && is_kept(&path, &made.public));
        let held = locked(&path).unwrap();
        let e = forget_next(&path, || Ok(None)).unwrap_err();
        assert!(matches!(e, KeyFileError::Busy { .. }), "{e}");
        assert!(is_kept(&path, &next));
        drop(held);
        forget_next(&path, || Ok(Some(made.public))).unwrap();
        assert!(!is_kept(&path, &next) && is_kept(&path, &made.public));
    }
}
