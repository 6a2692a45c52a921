use std::path::{Path, PathBuf};

use hpc_schema::task::{SlotId, VmId};

use crate::task::TaskDir;

/// The folder of one slice's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceFolder(PathBuf);

impl SliceFolder {
    /// Names it; nothing is touched.
    #[must_use]
    pub fn new(dir: &TaskDir, vm: &VmId) -> Self {
        Self(dir.slices().join(vm.as_str()))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What cloud-init reads.
    #[must_use]
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed.iso")
    }

    /// The key of this host's terminal.
    #[must_use]
    pub fn terminal_key(&self) -> PathBuf {
        self.0.join("terminal_key")
    }

    /// The machine's own key.
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.0.join("known_hosts")
    }
}

/// Who has a slot stands there.
#[must_use]
pub fn lease(dir: &TaskDir, slot: &SlotId) -> PathBuf {
    dir.leases().join(format!("{slot}.json"))
}
