use std::fmt;
use std::io::Write as _;

use hpc_schema::task::HostPath;
use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::place::{self, Place};
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::files::at;

/// A file with given bytes. The bytes are not in the journal: they may be secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where.
    pub path: HostPath,
    /// Permission bits.
    pub mode: u32,
    /// Lower-case hex SHA-256 of its bytes.
    pub sha256: String,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl File {
    /// With these bytes.
    #[must_use]
    pub fn new(path: HostPath, mode: u32, bytes: Vec<u8>) -> Self {
        Self {
            path,
            mode,
            sha256: hex::encode(Sha256::digest(&bytes)),
            bytes,
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

/// Makes a file of a task; on the disk and named when this returns.
pub(super) fn make(
    path: &HostPath,
    mode: u32,
    bytes: &[u8],
    scene: Scene<'_>,
    note: &mut Note<'_>,
) -> Result<(), EffectError> {
    let place = Place::open(path, scene)?;
    let file = openat(
        place.folder(),
        place.temporary(),
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_bits_truncate(mode),
    )
    .map_err(place.io("make"))?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(at("write", &place.temporary_path()))?;
    note(place.trace()?)?;
    place.publish()
}

impl Act for File {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        make(&self.path, self.mode, &self.bytes, scene, note)
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        place::remove(&self.path, scene, trace)
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        place::observe(&self.path, scene, trace)
    }

    fn shown(&self) -> String {
        format!("file {}", self.path)
    }
}
