//! A domain of libvirt. It is known by its UUID, which was drawn before it was made.

use std::path::Path;
use std::time::{Duration, Instant};

use hpc_schema::task::HostPath;
use serde::{Deserialize, Serialize};

use super::process::end_marked;
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::slice::libvirt::Libvirt;
use crate::slice::mark;
use crate::task::exec::Program;

/// How long making it may take.
const LIMIT: Duration = Duration::from_secs(300);
/// What was asked of libvirt by somebody who was killed may still be under way for so long.
const UNDER_WAY: Duration = Duration::from_secs(5);

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// `virsh`.
    pub virsh: HostPath,
    /// `virt-install`.
    pub virt_install: HostPath,
    /// Its arguments, by our code and checked values.
    pub arguments: Vec<String>,
    /// Folder of the machine, which goes with it: there `virt-install` keeps its log.
    pub folder: HostPath,
    /// Its name.
    pub name: String,
    /// Its own mark.
    pub uuid: String,
}

impl Domain {
    fn libvirt(&self) -> Libvirt {
        Libvirt::new(Path::new(self.virsh.as_str()))
    }

    fn forget(&self, scene: Scene<'_>) -> Result<(), EffectError> {
        Ok(self.libvirt().forget(&self.uuid, scene.stop)?)
    }
}

impl Act for Domain {
    fn apply(&self, scene: Scene<'_>, _note: &mut Note<'_>) -> Result<(), EffectError> {
        if self.libvirt().named(&self.name, scene.stop)? {
            return Err(EffectError::Busy(format!(
                "a domain {} exists already",
                self.name
            )));
        }
        let mark = mark::words(scene.mark, &scene.host.dir.instance());
        Program::new(Path::new(self.virt_install.as_str()))
            .vector(self.arguments.iter().cloned())
            .vector(["--metadata".to_owned(), format!("description={mark}")])
            .marked(scene)
            .with("XDG_CACHE_HOME", self.folder.to_string())
            .within(LIMIT)
            .run(scene.stop)?;
        if self.libvirt().exists(&self.uuid, scene.stop)? {
            return Ok(());
        }
        Err(EffectError::Unknown(format!(
            "virt-install ended well and libvirt knows no domain {}",
            self.uuid
        )))
    }

    fn undo(&self, scene: Scene<'_>, _trace: Option<&Trace>) -> Result<(), EffectError> {
        let interrupted = end_marked(scene)? > 0;
        let begun = Instant::now();
        loop {
            self.forget(scene)?;
            if !interrupted || begun.elapsed() >= UNDER_WAY {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    fn observe(&self, scene: Scene<'_>, _trace: Option<&Trace>) -> Result<Seen, EffectError> {
        Ok(if self.libvirt().exists(&self.uuid, scene.stop)? {
            Seen::Ours
        } else {
            Seen::Absent
        })
    }

    fn shown(&self) -> String {
        format!("domain {}", self.name)
    }
}
