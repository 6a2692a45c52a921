use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{FlockOperation, flock};

use super::StateDir;
use crate::files::{FileError, at};

/// Held by the running agent; the kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Takes the lock; none if another agent runs on this state.
    ///
    /// # Errors
    /// IO.
    pub fn take(state: &StateDir) -> Result<Option<Self>, FileError> {
        let path = state.lock();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(at("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(at("lock", &path)(e.into())),
        }
    }

    /// Whether an agent runs on this state.
    #[must_use]
    pub fn is_held(state: &StateDir) -> bool {
        let Ok(file) = File::open(state.lock()) else {
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
}
