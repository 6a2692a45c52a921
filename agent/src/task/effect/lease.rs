use std::io::Read as _;

use hpc_schema::task::HostPath;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use super::{Act, EffectError, Note, Scene, Seen, Trace, file, place};

/// A claim on something that only one may have: a JSON file that only one can make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The file; one a resource.
    pub path: HostPath,
    /// What is claimed, such as `slot/3`.
    pub resource: String,
    /// For whom, such as an allocation.
    pub holder: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    resource: String,
    holder: String,
    task_id: String,
    since: u64,
}

impl Act for Lease {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let content = Content {
            resource: self.resource.clone(),
            holder: self.holder.clone(),
            task_id: scene.mark.task_id.to_string(),
            since: scene.host.clock.seconds(),
        };
        let bytes = serde_json::to_vec(&content).map_err(|e| EffectError::Unknown(e.to_string()))?;
        match file::make(&self.path, 0o644, &bytes, scene, note) {
            Err(EffectError::Busy(_)) => Err(EffectError::Busy(self.holder_now())),
            other => other,
        }
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        place::remove(&self.path, scene, trace)
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        place::observe(&self.path, scene, trace)
    }

    fn shown(&self) -> String {
        format!("lease of {} for {}", self.resource, self.holder)
    }
}

impl Lease {
    fn holder_now(&self) -> String {
        let read = || -> Option<Content> {
            // Neither a link nor a pipe that somebody has put there may lead or hold us.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = std::fs::File::from(open(self.path.as_str(), flags, Mode::empty()).ok()?);
            let mut text = String::new();
            file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            file.take(4096).read_to_string(&mut text).ok()?;
            serde_json::from_str(&text).ok()
        };
        let content = read();
        match content {
            Some(c) => format!("{} is held by {} since {}", self.resource, c.holder, c.since),
            None => format!(
                "{} is held, by whom cannot be read in {}",
                self.resource, self.path
            ),
        }
    }
}
