use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::StateDir;
use crate::files::{FileError, Owner, at, directory_of};

/// Writing a file takes milliseconds; whoever holds the lock longer is stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// For what a killed agent has left behind (see [`Lock::take_within`]).
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// Held by one process until dropped; the kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave it held while a child of another thread has not yet become another program. Should
        // this fail, closing does it a moment later.
        flock(&self.0, FlockOperation::Unlock).ok();
    }
}

impl Lock {
    /// Takes the lock; none if another agent runs on this state, not only what one that was killed a moment ago has left.
    ///
    /// # Errors
    /// IO.
    pub fn take(state: &StateDir) -> Result<Option<Self>, FileError> {
        Self::take_within(&state.lock(), LEFT_BEHIND)
    }

    /// Takes any lock file; none if another process holds it.
    ///
    /// # Errors
    /// IO.
    pub fn take_at(path: &Path) -> Result<Option<Self>, FileError> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(flags())
            .open(path)
            .map_err(at("open", path))?;
        let meta = file.metadata().map_err(at("read", path))?;
        // Whoever owns the directory may have put a link there, to a file that is not theirs. No lock has a content.
        let refused = |what: &str| Err(at("lock", path)(std::io::Error::other(what)));
        if !meta.is_file() || meta.len() != 0 {
            return refused("is no lock: it must be an empty file; remove it");
        }
        // Made by root, it must still open for the service's user.
        if rustix::process::geteuid().is_root() {
            let owner = Owner::of(directory_of(path))?;
            if owner.uid != meta.uid() || owner.gid != meta.gid() {
                if meta.nlink() != 1 {
                    return refused("has another name, whose owner would change; remove it");
                }
                std::os::unix::fs::fchown(&file, Some(owner.uid), Some(owner.gid))
                    .map_err(at("change owner of", path))?;
            }
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(at("lock", path)(e.into())),
        }
    }

    /// The same, after waiting for at most `patience`: a process that was killed may leave a child that has not yet become
    /// another program, and that holds its locks until then.
    ///
    /// # Errors
    /// IO.
    pub fn take_within(path: &Path, patience: Duration) -> Result<Option<Self>, FileError> {
        let start = Instant::now();
        loop {
            let taken = Self::take_at(path)?;
            if taken.is_some() || start.elapsed() >= patience {
                return Ok(taken);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Takes a lock that others hold for moments only.
    ///
    /// # Errors
    /// IO, or held for longer than that.
    pub(super) fn wait(path: &Path) -> Result<Self, FileError> {
        let start = Instant::now();
        loop {
            if let Some(lock) = Self::take_at(path)? {
                return Ok(lock);
            }
            if start.elapsed() > PATIENCE {
                return Err(at("lock", path)(std::io::ErrorKind::WouldBlock.into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether an agent runs on this state.
    #[must_use]
    pub fn is_held(state: &StateDir) -> bool {
        Self::is_held_at(&state.lock())
    }

    /// Whether a process holds a lock file.
    #[must_use]
    pub fn is_held_at(path: &Path) -> bool {
        let opened = OpenOptions::new().read(true).custom_flags(flags()).open(path);
        let Ok(file) = opened else {
            return false;
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // It is let go at once, as any.
            Ok(()) => {
                drop(Self(file));
                false
            }
            Err(e) => e == rustix::io::Errno::WOULDBLOCK,
        }
    }
}

/// No link is followed, and no pipe waited for.
fn flags() -> i32 {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    i32::try_from(flags.bits()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_leads_to_another_file_gives_that_file_to_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, path) = (dir.path().join("shadow"), dir.path().join("service/rotate.lock"));
        std::fs::create_dir(dir.path().join("service")).unwrap();
        std::fs::write(&theirs, "").unwrap();
        let owner = std::fs::metadata(&theirs).unwrap().uid();
        if owner == 0 {
            std::os::unix::fs::chown(dir.path().join("service"), Some(4711), Some(4711)).unwrap();
        }
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        Lock::take_at(&path).unwrap_err();
        assert!(!Lock::is_held_at(&path));
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&theirs, &path).unwrap();
        // Who is not root can give nothing away: a copy of the state by links is no reason not to start.
        let taken = Lock::take_at(&path);
        if owner == 0 {
            let e = taken.unwrap_err();
            assert!(e.to_string().contains("rotate.lock: has another name"), "{e}");
        } else {
            drop(taken.unwrap());
        }
        assert_eq!(std::fs::metadata(&theirs).unwrap().uid(), owner);
        // One with a content was another's before.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "root:x:").unwrap();
        Lock::take_at(&path).unwrap_err();
        std::fs::write(&path, "").unwrap();
        drop(Lock::take_at(&path).unwrap().unwrap());
        let ours = if owner == 0 { 4711 } else { owner };
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), ours);
    }

    #[test]
    fn two_agents_cannot_share_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        assert!(!Lock::is_held(&state));
        let held = Lock::take(&state).unwrap().unwrap();
        assert!(Lock::is_held(&state));
        assert!(Lock::take_at(&state.lock()).unwrap().is_none());
        drop(held);
        assert!(Lock::take_at(&state.lock()).unwrap().is_some());
    }

    #[test]
    fn a_lock_let_go_is_free_even_if_a_child_has_its_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rotate.lock");
        let held = Lock::take_at(&path).unwrap().unwrap();
        // What a child has before it becomes another program: the same open file.
        let _inherited = held.0.try_clone().unwrap();
        drop(held);
        assert!(Lock::take_at(&path).unwrap().is_some());
    }

    #[test]
    fn what_a_killed_process_left_behind_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let path = state.lock();
        let held = Lock::take_at(&path).unwrap().unwrap();
        assert!(
            Lock::take_within(&path, Duration::from_millis(30))
                .unwrap()
                .is_none()
        );
        let soon = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(60));
            drop(held);
        });
        assert!(Lock::take(&state).unwrap().is_some());
        soon.join().unwrap();
    }
}
