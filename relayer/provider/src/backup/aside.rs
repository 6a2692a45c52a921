//! Folders of the daemon's directory that a backup or a restore works in: what lies there is in the clear. Each is its
//! maker's for as long as that lives, and nobody's afterwards, whatever number the process had.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::home::{self, Home};

/// What the folder of a backup begins with.
pub(super) const BACKUP: &str = ".backup-";
/// The same of a restore.
pub(super) const RESTORE: &str = ".restore-";
/// Whoever gets this lock in a folder works there, or finds one that nobody does.
const LOCK: &str = "lock";
/// So often a folder is made anew that a sweep has taken away before its lock was held.
const TRIES: u32 = 8;

/// A folder of this process.
#[derive(Debug)]
pub(super) struct Aside {
    path: PathBuf,
    _lock: fs::File,
}

impl Aside {
    pub(super) fn make(home: &Path, kind: &str) -> io::Result<Self> {
        let path = home.join(format!("{kind}{}", std::process::id()));
        for _ in 0..TRIES {
            home::make_private_dir(&path)?;
            match home::try_lock(&path.join(LOCK)) {
                Ok(Some(lock)) if stands(&lock)? => return Ok(Self { path, _lock: lock }),
                Ok(None) => break,
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "another process works there; run this again once that has ended",
        ))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn remove(self) -> io::Result<()> {
        clear(&self.path)
    }
}

/// Whether a lock that was got is still the one that others find.
fn stands(lock: &fs::File) -> io::Result<bool> {
    Ok(lock.metadata()?.nlink() > 0)
}

/// Removes a folder whose lock is held, that last: whoever makes and locks it anew meanwhile keeps it.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(folder.join(LOCK))?;
    match fs::remove_dir(folder) {
        Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => Ok(()),
        done => done,
    }
}

/// Whether a folder of this name is one that is made here.
pub(super) fn is(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind)
        .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

/// What killed backups and restores have left in the daemon's directory goes; it is in nobody's way if it cannot.
pub fn sweep(home: &Home) {
    sweep_of(home, &[BACKUP, RESTORE]);
}

/// The same of some kinds alone.
pub(super) fn sweep_of(home: &Home, kinds: &[&str]) {
    let folders = match left(home.dir(), kinds) {
        Ok(folders) => folders,
        Err(e) => {
            tracing::warn!(error = %e, folder = %home.dir().display(),
                "what unfinished backups or restores have left is not looked for; the directory must be readable for the daemon");
            return;
        }
    };
    // Each by itself: one that cannot go keeps no other.
    for folder in folders {
        match swept(&folder) {
            Ok(true) => tracing::info!(folder = %folder.display(),
                "what an unfinished backup or restore has left is removed"),
            Ok(false) => {}
            Err(e) => tracing::warn!(error = %e, folder = %folder.display(),
                "what an unfinished backup or restore has left stays, in the clear; remove it"),
        }
    }
}

fn left(home: &Path, kinds: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(home)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if kinds.iter().any(|kind| is(&name, kind)) && entry.file_type()?.is_dir() {
            left.push(entry.path());
        }
    }
    Ok(left)
}

/// Whether it was nobody's, and is gone.
fn swept(folder: &Path) -> io::Result<bool> {
    match home::try_lock(&folder.join(LOCK)) {
        Ok(Some(lock)) if stands(&lock)? => clear(folder).map(|()| true),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        // Somebody works there, or has just removed it.
        Ok(_) | Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_backup_or_restore_has_left_goes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        for left in [".backup-4711", ".restore-4712"] {
            fs::create_dir_all(dir.path().join(left).join("ca")).unwrap();
            fs::write(dir.path().join(left).join("ca/ca.key"), "in the clear").unwrap();
        }
        let others = [".backup-", ".backup-old", ".init-4711", "backup-4711"];
        for other in others {
            fs::create_dir(dir.path().join(other)).unwrap();
        }
        fs::write(dir.path().join(".backup-4713"), "a file").unwrap();
        let works = Aside::make(dir.path(), BACKUP).unwrap();
        sweep(&home);
        for left in [".backup-4711", ".restore-4712"] {
            assert!(!dir.path().join(left).exists(), "{left}");
        }
        for other in others.into_iter().chain([".backup-4713"]) {
            assert!(dir.path().join(other).exists(), "{other}");
        }
        let path = works.path().to_owned();
        assert!(path.exists(), "somebody works there");
        let busy = Aside::make(dir.path(), BACKUP).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::AlreadyExists);
        // Its process has ended.
        drop(works);
        sweep_of(&home, &[RESTORE]);
        assert!(path.exists(), "of another kind");
        sweep(&home);
        assert!(!path.exists());
    }

    #[test]
    fn what_cannot_be_removed_keeps_nothing_else_from_going() {
        let dir = tempfile::tempdir().unwrap();
        let (mut stays, mut goes) = (Vec::new(), Vec::new());
        for pid in 4711..4721 {
            // Nothing can be locked there.
            let stuck = dir.path().join(format!(".backup-{pid}"));
            fs::create_dir_all(stuck.join(LOCK)).unwrap();
            stays.push(stuck);
            let left = dir.path().join(format!(".restore-{pid}"));
            fs::create_dir(&left).unwrap();
            goes.push(left);
        }
        sweep(&Home::new(dir.path()));
        assert!(stays.iter().all(|folder| folder.exists()));
        assert!(!goes.iter().any(|folder| folder.exists()));
    }

    #[test]
    fn a_folder_that_is_somebodys_is_not_swept_away_while_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| {
                for _ in 0..2_000 {
                    sweep(&home);
                }
            });
            let mut times = 0;
            while !sweeping.is_finished() {
                let made = match Aside::make(dir.path(), BACKUP) {
                    Ok(made) => made,
                    // A sweep holds the lock at that moment.
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                    Err(e) => panic!("{e}"),
                };
                fs::write(made.path().join("provider.db"), "a copy").unwrap();
                made.remove().unwrap();
                times += 1;
            }
            assert!(times > 0);
        });
    }
}
