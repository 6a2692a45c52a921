use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::StateDir;
use crate::files::{FileError, Owner, at, directory_of};

/// Writing a file takes milliseconds; whoever holds the lock longer is stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// Held by one process; the kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Takes the lock; none if another agent runs on this state.
    ///
    /// # Errors
    /// IO.
    pub fn take(state: &StateDir) -> Result<Option<Self>, FileError> {
        Self::take_at(&state.lock())
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
            .open(path)
            .map_err(at("open", path))?;
        // Made by root, it must still open for the service's user.
        if rustix::process::geteuid().is_root() {
            let owner = Owner::of(directory_of(path))?;
            std::os::unix::fs::fchown(&file, Some(owner.uid), Some(owner.gid))
                .map_err(at("change owner of", path))?;
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
        let Ok(file) = File::open(path) else {
            return false;
        };
        flock(&file, FlockOperation::NonBlockingLockShared).is_err_and(|e| e == rustix::io::Errno::WOULDBLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_agents_cannot_share_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        assert!(!Lock::is_held(&state));
        let held = Lock::take(&state).unwrap().unwrap();
        assert!(Lock::is_held(&state));
        assert!(Lock::take(&state).unwrap().is_none());
        drop(held);
        assert!(!Lock::is_held(&state));
        assert!(Lock::take(&state).unwrap().is_some());
    }

    #[test]
    fn what_a_killed_process_left_behind_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
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
        assert!(
            Lock::take_within(&path, Duration::from_secs(60))
                .unwrap()
                .is_some()
        );
        soon.join().unwrap();
    }
}
