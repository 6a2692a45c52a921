//! A whole block device that a machine writes to. Undone by zeroes, and by reading them back.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use hpc_schema::task::HostPath;
use serde::{Deserialize, Serialize};

use super::process::end_marked;
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::files::at;
use crate::slice::disk;
use crate::task::exec::Program;

/// A big disk without a command for it is written full.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its stable name.
    pub device: HostPath,
    /// What is written onto it at first: a program and its arguments, by our code and checked values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<(HostPath, Vec<String>)>,
    /// `blkdiscard`.
    pub blkdiscard: HostPath,
}

impl Disk {
    fn number(&self) -> Result<Trace, EffectError> {
        let path = Path::new(self.device.as_str());
        let meta = std::fs::metadata(path).map_err(at("read", path))?;
        Ok(Trace::Inode {
            dev: meta.rdev(),
            ino: meta.ino(),
            kind: meta.mode() & 0o170_000,
            born: 0,
            born_ns: 0,
        })
    }
}

impl Act for Disk {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        disk::unused(&self.device)?;
        // Without this, nothing was ever written: it may be another's.
        note(self.number()?)?;
        if let Some((program, arguments)) = &self.write {
            Program::new(Path::new(program.as_str()))
                .vector(arguments.iter().cloned())
                .marked(scene)
                .within(LIMIT)
                .run(scene.stop)?;
        }
        Ok(())
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        if trace.is_none() {
            return Ok(());
        }
        end_marked(scene)?;
        disk::unused(&self.device)?;
        // Zeroes by the device's own command where it has one, written where it has not.
        Program::new(Path::new(self.blkdiscard.as_str()))
            .flag("--zeroout")
            .value(self.device.as_str())?
            .marked(scene)
            .within(LIMIT)
            .run(scene.stop)?;
        // What a command says is no proof; stuck, it is wiped again and keeps its lease.
        if !disk::sample(&self.device, &scene.mark.to_string())?.zero {
            let text = format!("{} was wiped and is not zero", self.device);
            return Err(EffectError::Unknown(text));
        }
        Ok(())
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        if trace.is_none() {
            return Ok(Seen::Absent);
        }
        let seen = disk::sample(&self.device, &scene.mark.to_string())?;
        Ok(if seen.zero { Seen::Absent } else { Seen::Ours })
    }

    fn shown(&self) -> String {
        format!("disk {}", self.device)
    }
}
