//! Reads figures of this machine from `/proc` and `/sys`. Roots are arguments, so that recorded trees of other hosts
//! are test input. A figure that cannot be read is absent, never 0.

pub mod checks;
pub mod cpu;
pub mod disk;
pub mod errors;
pub mod fingerprint;
pub mod gpu;
pub mod hardware;
pub mod host;
pub mod kept;
pub mod latency;
pub mod memory;
pub mod network;
pub mod pci;
pub mod pressure;
pub mod process;
pub mod recent;
pub mod seen;
pub mod services;
pub mod slurm;
pub mod source;
pub mod storage;
pub mod temperature;
pub mod tool;
pub mod window;

use std::path::{Path, PathBuf};

/// Where the kernel's trees are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
    /// `/dev`
    pub dev: PathBuf,
    /// `/etc`, for the machine id.
    pub etc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            dev: "/dev".into(),
            etc: "/etc".into(),
        }
    }
}

impl Roots {
    /// All four below one folder: a recorded tree.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            dev: root.join("dev"),
            etc: root.join("etc"),
        }
    }
}

/// `part` of `whole` in percent, rounded half up, at most 100; none if `whole` is 0.
#[must_use]
pub fn percent(part: u64, whole: u64) -> Option<u8> {
    let scaled = u128::from(part)
        .saturating_mul(200)
        .saturating_add(u128::from(whole));
    let p = scaled.checked_div(u128::from(whole).saturating_mul(2))?;
    Some(u8::try_from(p.min(100)).unwrap_or(100))
}

/// The names in a directory, sorted; empty if it cannot be read.
#[must_use]
pub fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// The trimmed text of a one-line sysfs file; none if it cannot be read or is empty.
#[must_use]
pub fn line(path: &Path) -> Option<String> {
    let text = crate::files::read_text(path, 4096).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The kernel's name of this boot.
#[must_use]
pub fn boot_id(proc: &Path) -> Option<String> {
    line(&proc.join("sys/kernel/random/boot_id"))
}

/// A recorded tree of another host, unpacked: `fixtures/<name>.tree`.
#[cfg(test)]
pub(crate) fn recorded(name: &str) -> (tempfile::TempDir, Roots) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(format!("{name}.tree"));
    let dir = tempfile::tempdir().unwrap();
    unpack(&std::fs::read_to_string(path).unwrap(), dir.path());
    let roots = Roots::below(dir.path());
    (dir, roots)
}

/// One file a section: `== path`, then its lines; `== path -> target` is a symbolic link.
#[cfg(test)]
fn unpack(text: &str, dir: &Path) {
    for section in text.split("== ").skip(1) {
        let (path, content) = section.split_once('\n').unwrap();
        let (path, target) = path
            .split_once(" -> ")
            .map_or((path, None), |(p, t)| (p, Some(t)));
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match target {
            Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            None => std::fs::write(path, content).unwrap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_half_up_and_never_exceed_100() {
        assert_eq!(percent(1, 200), Some(1));
        assert_eq!(percent(1, 201), Some(0));
        assert_eq!(percent(5, 4), Some(100));
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
        assert_eq!(percent(1, 0), None);
    }
}
