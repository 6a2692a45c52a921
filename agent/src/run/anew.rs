//! A registration that another process has written while the agent runs (`register` with a new token, `key rotate`): it
//! is looked for beside what is kept, so that it counts where no gateway can be reached with the former one, too.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use super::identity::{Places, best};
use crate::key::{KeyFileError, SharedSigner, load_registered};
use crate::state::Registration;
use crate::uplink::{Identity, Known, read_known};

/// A registration on the disk that has taken the place of the agent's, and what belongs to it.
#[derive(Debug)]
pub(super) struct Anew {
    pub(super) registration: Registration,
    /// Another key than the agent's.
    pub(super) key: Option<SharedSigner>,
    pub(super) identity: Option<Identity>,
    /// What the CA file holds.
    pub(super) known: Known,
    /// It could not be taken over: when that is tried again.
    pub(super) not_before: Option<Instant>,
}

/// One content of a file: each is written as a new file.
type Stamp = (u64, i64, i64);

/// Looks for it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// What was looked at.
    seen: Option<Stamp>,
    /// What could not be used, which was said.
    said: Option<Stamp>,
}

impl Watch {
    /// One that takes the place of the present one. What cannot be read yet is looked at again.
    pub(super) fn look(&mut self, present: &Places) -> Option<Anew> {
        let now = stamp(&present.state.registration())?;
        if self.seen == Some(now) {
            return None;
        }
        let found = Registration::load(&present.state).ok().flatten()?;
        if !found.replaces(&present.registration) {
            self.seen = Some(now);
            return None;
        }
        match gather(present, found) {
            Ok(anew) => {
                self.seen = Some(now);
                Some(anew)
            }
            Err(e) => {
                if self.said.replace(now) != Some(now) {
                    tracing::error!(
                        "this node was registered anew, and the key of that cannot be used yet: {e}"
                    );
                }
                None
            }
        }
    }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec()))
}

fn gather(present: &Places, registration: Registration) -> Result<Anew, KeyFileError> {
    let config = &present.config;
    let key = if registration.public_key == present.registration.public_key {
        None
    } else {
        Some(load_registered(&config.key_path, &registration.public_key)?)
    };
    Ok(Anew {
        key,
        identity: best(config, &present.state, &registration),
        known: read_known(&config.tls.ca_cert).unwrap_or_default(),
        registration,
        not_before: None,
    })
}
