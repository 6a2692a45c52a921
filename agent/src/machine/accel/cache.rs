//! What is known of accelerators, in one file: worth nothing once host kernel, QEMU or probe kernel are others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Accel;
use crate::files::{Durability, read_text};
use crate::state::{read_json, write_json};

/// After this many seconds what failed is tried again: somebody may have mended it without a new kernel.
const RETRY: u64 = 6 * 3600;

/// What was seen of one accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Whether a stock kernel ran through.
    pub works: bool,
    /// What was seen.
    pub detail: String,
    /// How long it took.
    pub took_ms: u64,
    /// When, in UNIX seconds.
    pub at: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    key: String,
    seen: BTreeMap<String, Evidence>,
}

/// What is known of this host.
#[derive(Debug)]
pub struct Known {
    path: PathBuf,
    kept: Kept,
}

impl Known {
    /// What was kept under this key; a file that cannot be read is no knowledge.
    #[must_use]
    pub fn load(path: &Path, key: String) -> Self {
        let kept = read_json::<Kept>(path).ok().flatten().filter(|k| k.key == key);
        Self {
            path: path.to_owned(),
            kept: kept.unwrap_or_else(|| Kept {
                key,
                seen: BTreeMap::new(),
            }),
        }
    }

    /// Where it is kept.
    pub(super) fn folder(&self) -> &Path {
        crate::files::directory_of(&self.path)
    }

    /// What is known, unless it is a failure of long ago.
    #[must_use]
    pub fn of(&self, accel: Accel, now: u64) -> Option<Evidence> {
        let seen = self.kept.seen.get(accel.as_str())?;
        let fresh = seen.works || now.checked_sub(seen.at).is_some_and(|age| age < RETRY);
        fresh.then(|| seen.clone())
    }

    /// Keeps it. Lost with the disk, it is probed again.
    pub fn put(&mut self, accel: Accel, seen: &Evidence) {
        self.kept.seen.insert(accel.as_str().to_owned(), seen.clone());
        if let Err(e) = write_json(&self.path, &self.kept, 0o644, Durability::Atomic) {
            tracing::warn!("what is known of accelerators cannot be kept: {e}");
        }
    }
}

/// Stands for the host's kernel since it booted, its accelerators' devices, QEMU and the probe's kernel: firmware can take
/// virtualisation away between two boots.
#[must_use]
pub fn key(proc: &Path, qemu: &Path, kernel: &Path) -> String {
    let host = rustix::system::uname();
    let mut hash = Sha256::new();
    let boot = read_text(&proc.join("sys/kernel/random/boot_id"), 64);
    hash.update(boot.unwrap_or_default());
    for device in ["/dev/kvm", "/dev/nvmm"] {
        if let Ok(meta) = fs::metadata(device) {
            hash.update(meta.rdev().to_le_bytes());
            hash.update(meta.mode().to_le_bytes());
            hash.update(meta.gid().to_le_bytes());
        }
    }
    for part in [host.release(), host.version(), host.machine()] {
        hash.update(part.to_bytes());
        hash.update([0]);
    }
    for file in [qemu, kernel] {
        hash.update(file.as_os_str().as_encoded_bytes());
        if let Ok(meta) = fs::metadata(file) {
            for number in [meta.len(), meta.ino(), meta.mtime().unsigned_abs()] {
                hash.update(number.to_le_bytes());
            }
        }
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_lasts_until_kernel_or_qemu_are_others_and_failure_a_quarter_of_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let (memory, qemu) = (dir.path().join("accel.json"), dir.path().join("qemu"));
        fs::write(&qemu, "1").unwrap();
        let load = || Known::load(&memory, key(Path::new("/proc"), &qemu, Path::new("/k")));
        let evidence = |works| Evidence {
            works,
            detail: String::new(),
            took_ms: 1,
            at: 1000,
        };
        let mut known = load();
        assert_eq!(known.of(Accel::Tcg, 1000), None);
        known.put(Accel::Tcg, &evidence(true));
        known.put(Accel::Kvm, &evidence(false));
        let known = load();
        assert!(known.of(Accel::Tcg, 9_000_000).unwrap().works);
        assert!(!known.of(Accel::Kvm, 1000 + RETRY - 1).unwrap().works);
        assert_eq!(known.of(Accel::Kvm, 1000 + RETRY), None);
        fs::write(&qemu, "another").unwrap();
        assert_eq!(load().of(Accel::Tcg, 1000), None);
        fs::write(&memory, "damaged").unwrap();
        assert_eq!(load().of(Accel::Tcg, 1000), None);
    }
}
