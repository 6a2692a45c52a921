use std::path::Path;
use std::time::Duration;

use hpc_schema::task::HostPath;
use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use super::process::end_marked;
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::task::exec::{ExecError, Program};
use crate::task::jail::Jail;

/// A file that a program writes, such as an overlay by `qemu-img`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Produced {
    /// Where it is to be.
    pub path: HostPath,
    /// Permission bits.
    pub mode: u32,
    /// The program.
    pub program: HostPath,
    /// Its arguments, by our code and checked values; `{}` stands for the file to write.
    pub arguments: Vec<String>,
    /// Seconds that the program may take.
    pub limit_seconds: u64,
}

impl Act for Produced {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let place = Place::open(&self.path, scene)?;
        let temporary = place.temporary_path();
        let text = temporary
            .to_str()
            .ok_or_else(|| EffectError::Unknown(format!("{} is not text", temporary.display())))?;
        let arguments = self
            .arguments
            .iter()
            .map(|a| if a == "{}" { text.to_owned() } else { a.clone() });
        if self.arguments.iter().any(|a| a.contains('\0')) {
            return Err(ExecError::Argument("with a zero byte".to_owned()).into());
        }
        Program::new(Path::new(self.program.as_str()))
            .vector(arguments)
            .marked(scene)
            .within(Duration::from_secs(self.limit_seconds))
            .jailed(Jail::Writes(
                temporary.parent().map(Path::to_owned).into_iter().collect(),
            ))
            .run(scene.stop)?;
        place.seal(self.mode)?;
        note(place.trace()?)?;
        place.publish()
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        // It would go on writing to a file that has no name.
        end_marked(scene)?;
        place::remove(&self.path, scene, trace)
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        place::observe(&self.path, scene, trace)
    }

    fn shown(&self) -> String {
        format!("file {}", self.path)
    }
}
