use hpc_schema::task::HostPath;
use rustix::fs::{Mode, mkdirat};
use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use super::{Act, EffectError, Note, Scene, Seen, Trace};

/// A folder. Undone with all that is in it then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Where.
    pub path: HostPath,
    /// Permission bits.
    pub mode: u32,
}

impl Act for Directory {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let place = Place::open(&self.path, scene)?;
        mkdirat(
            place.folder(),
            place.temporary(),
            Mode::from_bits_truncate(self.mode),
        )
        .map_err(place.io("make"))?;
        note(place.trace()?)?;
        place.publish()
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        place::remove(&self.path, scene, trace)
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        place::observe(&self.path, scene, trace)
    }

    fn shown(&self) -> String {
        format!("folder {}", self.path)
    }
}
