use std::path::{Path, PathBuf};
use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};

use super::policy::Policy;
use crate::clock::Clock;
use crate::files::{FileError, at};
use crate::probe::Roots;

/// The machine that tasks work on.
#[derive(Debug, Clone)]
pub struct Host {
    /// The kernel's trees.
    pub roots: Roots,
    /// What the task domain keeps.
    pub dir: TaskDir,
    /// What the site allows.
    pub policy: Arc<Policy>,
    /// The wall clock.
    pub clock: Clock,
}

/// The folder of the task domain: its owner's alone.
///
/// ```text
/// journal/<task_id>.log   what each task meant to do and did
/// machines/               folders of virtual machines
/// slices/                 folders of slices' machines
/// leases/<slot_id>.json   who has a slot
/// authority.json          whose tasks count here
/// refusals.log            what was refused, so that it stays refused
/// safety.json             what the last look at the host has found, for others to read
/// probe.json              how the last health probe ended, for others to read
/// quarantine/             what was in no journal
/// statistics.json         what libvirt says of slices' machines, for others to read
/// holdings.json           what completed tasks have left on the host, for others to read
/// lock                    held while the domain runs
/// ```
#[derive(Debug, Clone)]
pub struct TaskDir {
    path: PathBuf,
    /// Names cluster, node and folder.
    tag: Option<String>,
}

impl TaskDir {
    /// Names a folder; nothing is touched.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            tag: None,
        }
    }

    /// The same, and whose it is: what it makes among things of other nodes carries both.
    #[must_use]
    pub fn of(self, cluster: &ClusterId, node: &NodeId) -> Self {
        use sha2::Digest as _;
        let mut hash = sha2::Sha256::new();
        for part in [
            self.path.as_os_str().as_encoded_bytes(),
            cluster.as_str().as_bytes(),
            node.as_str().as_bytes(),
        ] {
            hash.update(part);
            // In none of them.
            hash.update([0]);
        }
        let mut tag = hex::encode(hash.finalize());
        tag.truncate(16);
        Self {
            tag: Some(tag),
            ..self
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names this folder in what it has made beyond it on this host: there may be another task domain here.
    #[must_use]
    pub fn instance(&self) -> String {
        use sha2::Digest as _;
        let mut name = hex::encode(sha2::Sha256::digest(self.path.as_os_str().as_encoded_bytes()));
        name.truncate(12);
        name
    }

    /// Names this folder of this node in what it makes where other nodes make theirs: in a folder that several share,
    /// each with the same `tasks.dir`.
    #[must_use]
    pub fn tag(&self) -> String {
        self.tag.clone().unwrap_or_else(|| self.instance())
    }

    /// Name of the control group of a machine.
    #[must_use]
    pub fn group(&self, vm_id: &str) -> String {
        format!("{}-{vm_id}", self.instance())
    }

    /// Journals of tasks.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Folders of virtual machines.
    #[must_use]
    pub fn machines(&self) -> PathBuf {
        self.path.join("machines")
    }

    /// Folders of slices' machines.
    #[must_use]
    pub fn slices(&self) -> PathBuf {
        self.path.join("slices")
    }

    /// Who has which slot.
    #[must_use]
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }

    /// Whose tasks count here.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.path.join("authority.json")
    }

    /// Held while leases are guarded.
    #[must_use]
    pub fn guard(&self) -> PathBuf {
        self.path.join("guard.lock")
    }

    /// What was refused.
    #[must_use]
    pub fn refusals(&self) -> PathBuf {
        self.path.join("refusals.log")
    }

    /// What the last look at the host has found, for others to read.
    #[must_use]
    pub fn safety(&self) -> PathBuf {
        self.path.join("safety.json")
    }

    /// How the last health probe ended, for others to read.
    #[must_use]
    pub fn probe(&self) -> PathBuf {
        self.path.join("probe.json")
    }

    /// What libvirt says of slices' machines, for others to read.
    #[must_use]
    pub fn statistics(&self) -> PathBuf {
        self.path.join("statistics.json")
    }

    /// What was found without a journal and moved out of the way.
    #[must_use]
    pub fn quarantine(&self) -> PathBuf {
        self.path.join("quarantine")
    }

    /// What is held, for others to read.
    #[must_use]
    pub fn holdings(&self) -> PathBuf {
        self.path.join("holdings.json")
    }

    /// Held while the domain runs.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Makes the folder, for its owner alone (others may pass through it to `holdings.json`).
    ///
    /// # Errors
    /// IO; a folder that others may write to.
    pub fn create(&self) -> Result<(), FileError> {
        use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
        for (path, mode) in [
            (self.path.clone(), 0o711),
            (self.journal(), 0o700),
            (self.machines(), 0o711),
            (self.slices(), 0o711),
            (self.leases(), 0o755),
        ] {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(&path)
                .map_err(at("create directory", &path))?;
            let meta = std::fs::symlink_metadata(&path).map_err(at("read", &path))?;
            let ours = meta.uid() == rustix::process::geteuid().as_raw();
            if !meta.is_dir() || !ours || meta.permissions().mode() & 0o022 != 0 {
                let what = "must be a folder of this user that nobody else may write to; chown and chmod 711";
                return Err(at("use", &path)(std::io::Error::other(what)));
            }
        }
        Ok(())
    }
}
