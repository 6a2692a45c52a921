use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hpc_schema::task::VmId;
use serde::{Deserialize, Serialize};

use super::admission::{Holding, OVERHEAD_MIB};
use crate::files::{FileError, at, read_text};
use crate::probe::names_in;

/// Longest path of a Unix socket, with its end.
const SOCKET: usize = 107;

/// The folder of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// Names it; nothing is touched.
    ///
    /// # Errors
    /// A path that is no UTF-8, or too long for a socket.
    pub fn new(machines: &Path, vm_id: &VmId) -> Result<Self, FileError> {
        let folder = Self(machines.join(vm_id.as_str()));
        let bad = |what: &str| at("use", &folder.0)(io::Error::other(what.to_owned()));
        if folder.0.to_str().is_none() {
            return Err(bad("is no UTF-8; choose another tasks.dir"));
        }
        if folder.control().as_os_str().len() > SOCKET {
            return Err(bad(
                "is too long for the path of a socket; choose a shorter tasks.dir or vm_id",
            ));
        }
        Ok(folder)
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

    /// The machine's writes.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.0.join("disk.qcow2")
    }

    /// What cloud-init reads.
    #[must_use]
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed.iso")
    }

    /// What it may take.
    #[must_use]
    pub fn size(&self) -> PathBuf {
        self.0.join("size.json")
    }

    /// QEMU's own.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// The monitor of whoever has something to say.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.0.join("run/control")
    }

    /// The monitor that is listened to.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.0.join("run/events")
    }
}

/// What a machine may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Processors.
    pub vcpus: u32,
    /// Memory in MiB, without QEMU's own.
    pub memory_mib: u64,
    /// Bytes that its disk can grow to.
    pub disk: u64,
    /// Id of the user that is its own; none if machines share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

impl Size {
    /// What it may take of memory, QEMU's own too.
    fn promised_mib(&self) -> u64 {
        self.memory_mib.saturating_add(OVERHEAD_MIB)
    }
}

fn sizes(machines: &Path) -> Vec<(Folder, String, Option<Size>)> {
    let mut all = Vec::new();
    for name in names_in(machines).into_iter().filter(|n| !n.starts_with('.')) {
        let folder = Folder(machines.join(&name));
        let read = read_text(&folder.size(), 4096)
            .ok()
            .and_then(|t| serde_json::from_str::<Size>(&t).ok());
        all.push((folder, name, read));
    }
    all
}

/// Ids of users that machines below this folder have, those that are being made too.
#[must_use]
pub fn user_ids(machines: &Path) -> BTreeSet<u32> {
    sizes(machines)
        .iter()
        .filter_map(|(_, _, size)| size.as_ref()?.uid)
        .collect()
}

/// What all machines below this folder hold, those that are being made too. One whose size cannot be read counts as
/// one that holds everything: whoever is let in beside it may find nothing left. `resident` is how many MiB the machine
/// of a name has in memory; where that is not counted, it may still take all that it was promised.
#[must_use]
pub fn held(machines: &Path, resident: &dyn Fn(&str) -> Option<u64>) -> Holding {
    let mut all = Holding::default();
    for (folder, name, read) in sizes(machines) {
        let size = read.unwrap_or(Size {
            vcpus: u32::MAX,
            memory_mib: u64::MAX,
            disk: u64::MAX,
            uid: None,
        });
        let untouched = size.promised_mib().saturating_sub(resident(&name).unwrap_or(0));
        let written = std::fs::metadata(folder.disk()).map_or(0, |m| m.blocks().saturating_mul(512));
        all.machines = all.machines.saturating_add(1);
        all.vcpus = all.vcpus.saturating_add(size.vcpus);
        all.memory_mib = all.memory_mib.saturating_add(size.promised_mib());
        all.untouched_mib = all.untouched_mib.saturating_add(untouched);
        all.unwritten = all.unwritten.saturating_add(size.disk.saturating_sub(written));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_hold_what_they_may_take_and_one_of_unknown_size_holds_all() {
        let dir = tempfile::tempdir().unwrap();
        let unknown = |_: &str| None;
        assert_eq!(held(dir.path(), &unknown), Holding::default());
        let folder = Folder::new(dir.path(), &"vm-1".parse().unwrap()).unwrap();
        std::fs::create_dir_all(folder.path()).unwrap();
        std::fs::create_dir(dir.path().join(".ve-new")).unwrap();
        let size = Size {
            vcpus: 2,
            memory_mib: 100,
            disk: 10_000,
            uid: Some(7),
        };
        std::fs::write(folder.size(), serde_json::to_vec(&size).unwrap()).unwrap();
        std::fs::write(folder.disk(), [1u8; 4096]).unwrap();
        let all = held(dir.path(), &unknown);
        assert_eq!(all.untouched_mib, 100 + OVERHEAD_MIB);
        assert_eq!(held(dir.path(), &|_| Some(90)).untouched_mib, 10 + OVERHEAD_MIB);
        assert_eq!(user_ids(dir.path()), [7].into());
        assert_eq!(
            (all.machines, all.vcpus, all.memory_mib),
            (1, 2, 100 + OVERHEAD_MIB)
        );
        assert!(all.unwritten <= 10_000);
        std::fs::create_dir(dir.path().join("vm-2")).unwrap();
        assert_eq!(held(dir.path(), &unknown).vcpus, u32::MAX);
        let long = Path::new("/x").join("y".repeat(100));
        assert!(Folder::new(&long, &"vm-1".parse().unwrap()).is_err());
    }
}
