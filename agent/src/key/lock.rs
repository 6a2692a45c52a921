//! One command at a time changes a node's keys: what one has read another must not have replaced before it writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::KeyFileError;
use crate::state::Lock;

/// A rename takes milliseconds; whoever holds the lock for longer asks a device.
const PATIENCE: Duration = Duration::from_secs(1);

/// `agent.key.lock` beside `agent.key`.
pub(super) fn lock_path(key_path: &Path) -> PathBuf {
    let mut name = key_path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// The keys are this process's to change until it is dropped.
pub(super) fn locked(key_path: &Path) -> Result<Lock, KeyFileError> {
    Lock::take_within(&lock_path(key_path), PATIENCE)?.ok_or_else(|| KeyFileError::Busy {
        path: key_path.display().to_string(),
    })
}
