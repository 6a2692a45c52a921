//! A machine's control group: what QEMU, its threads and whatever it might become can take of the host. Version 2, or
//! the single hierarchies of version 1 where the host still has those; where there is neither, or they may not be
//! written, the machine runs without and the result says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folder of the groups of machines, below each hierarchy.
pub const MACHINES: &str = "virtengine-machines";
/// Controllers in use.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
/// Microseconds over which processor time is counted.
const PERIOD: u32 = 100_000;
/// The largest page of memory in use anywhere.
const PAGE: u64 = 64 << 10;
/// The kernel may still be taking the last thread out.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a machine may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub memory: u64,
    /// Hundredths of a processor.
    pub cpu: u32,
    /// Processes and threads.
    pub pids: u32,
}

/// One group, by its name in each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    root: PathBuf,
    parent: String,
    name: String,
}

impl Group {
    /// Names it; nothing is touched. `root` is where control groups are mounted.
    #[must_use]
    pub fn new(root: &Path, parent: &str, name: &str) -> Self {
        Self {
            root: root.to_owned(),
            parent: parent.to_owned(),
            name: name.to_owned(),
        }
    }

    fn unified(&self) -> bool {
        self.root.join("cgroup.controllers").exists()
    }

    /// The group's folder in each hierarchy that the host has, with the hierarchy's controllers.
    fn folders(&self) -> Vec<(PathBuf, &'static [&'static str])> {
        let below = |top: PathBuf| top.join(&self.parent).join(&self.name);
        if self.unified() {
            return vec![(below(self.root.clone()), &CONTROLLERS)];
        }
        CONTROLLERS
            .chunks(1)
            .filter_map(|c| Some((self.root.join(c.first()?), c)))
            .filter(|(top, _)| top.is_dir())
            .map(|(top, c)| (below(top), c))
            .collect()
    }

    /// Makes it and sets what can be set; the controllers that now hold.
    pub fn make(&self, limits: Limits) -> Vec<&'static str> {
        let unified = self.unified();
        let mut holding = Vec::new();
        for (folder, controllers) in self.folders() {
            if unified {
                self.delegate();
            }
            if fs::create_dir_all(&folder).is_err() {
                continue;
            }
            let set = |c: &&&str| limit(&folder, c, limits, unified).is_ok();
            holding.extend(controllers.iter().filter(set));
        }
        holding
    }

    /// Version 2 gives a controller to a folder's children only when it is told to.
    fn delegate(&self) {
        let parent = self.root.join(&self.parent);
        fs::create_dir_all(&parent).ok();
        for folder in [&self.root, &parent] {
            for controller in CONTROLLERS {
                // Refused: `limit` will find no file, and the result says what holds.
                fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}")).ok();
            }
        }
    }

    /// Puts a process in; its threads and children come along.
    ///
    /// # Errors
    /// IO.
    pub fn admit(&self, pid: u32) -> io::Result<()> {
        for (folder, _) in self.folders() {
            if folder.is_dir() {
                fs::write(folder.join("cgroup.procs"), pid.to_string())?;
            }
        }
        Ok(())
    }

    /// Whether anything of it is there.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.folders().iter().any(|(folder, _)| folder.exists())
    }

    /// Controllers that hold this process with these limits: read back, not believed.
    #[must_use]
    pub fn holding(&self, limits: Limits, pid: u32) -> Vec<&'static str> {
        let unified = self.unified();
        let pid = pid.to_string();
        let inside = |folder: &Path| {
            let all = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            all.lines().any(|l| l == pid)
        };
        let folders = self.folders();
        folders
            .iter()
            .filter(|(folder, _)| inside(folder))
            .flat_map(|(folder, controllers)| {
                controllers.iter().filter(|c| holds(folder, c, limits, unified))
            })
            .copied()
            .collect()
    }

    /// MiB that the group's processes have in memory and that could not be given up without swap; none if it is not counted.
    #[must_use]
    pub fn resident_mib(&self) -> Option<u64> {
        let unified = self.unified();
        let folders = self.folders();
        let (folder, _) = folders.iter().find(|(_, c)| c.contains(&"memory"))?;
        let text = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let value = |name: &str| -> Option<u64> {
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse().ok()
        };
        let anonymous = value(if unified { "anon" } else { "rss" })?;
        Some(anonymous.saturating_add(value("shmem").unwrap_or(0)) >> 20)
    }

    /// Takes it away if nothing is in it.
    pub fn discard(&self) {
        for (folder, _) in self.folders() {
            // Still in use, or gone.
            fs::remove_dir(&folder).ok();
        }
    }

    /// Ends what is still in it, and takes it away.
    ///
    /// # Errors
    /// Something in it does not end.
    pub fn remove(&self) -> io::Result<()> {
        for (folder, _) in self.folders() {
            if !folder.exists() {
                continue;
            }
            // Version 2 only; the machine's process has ended before.
            let kill = fs::OpenOptions::new()
                .write(true)
                .open(folder.join("cgroup.kill"));
            kill.and_then(|mut f| io::Write::write_all(&mut f, b"1")).ok();
            let end = Instant::now().checked_add(PATIENCE);
            loop {
                match fs::remove_dir(&folder) {
                    Ok(()) => break,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                    Err(e) if end.is_none_or(|end| Instant::now() >= end) => return Err(e),
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
        Ok(())
    }
}

/// Whether the kernel has the limit as it was set; of memory it keeps whole pages.
fn holds(folder: &Path, controller: &str, limits: Limits, unified: bool) -> bool {
    let read = |name: &str| {
        fs::read_to_string(folder.join(name))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let quota = quota(limits).to_string();
    match (controller, unified) {
        ("memory", _) => {
            let name = if unified {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            let set = read(name).parse::<u64>();
            set.is_ok_and(|n| n <= limits.memory && limits.memory.saturating_sub(n) < PAGE)
        }
        ("cpu", true) => read("cpu.max") == format!("{quota} {PERIOD}"),
        ("cpu", false) => {
            read("cpu.cfs_quota_us") == quota && read("cpu.cfs_period_us") == PERIOD.to_string()
        }
        _ => read("pids.max") == limits.pids.to_string(),
    }
}

fn quota(limits: Limits) -> u64 {
    u64::from(limits.cpu).saturating_mul(u64::from(PERIOD)) / 100
}

fn limit(folder: &Path, controller: &str, limits: Limits, unified: bool) -> io::Result<()> {
    let set = |name: &str, value: String| {
        let path = folder.join(name);
        // Never made anew: a kernel file that is missing is a controller that does not hold.
        fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut f| io::Write::write_all(&mut f, value.as_bytes()))
    };
    let quota = quota(limits);
    match (controller, unified) {
        ("memory", true) => set("memory.max", limits.memory.to_string()),
        ("memory", false) => set("memory.limit_in_bytes", limits.memory.to_string()),
        ("cpu", true) => set("cpu.max", format!("{quota} {PERIOD}")),
        ("cpu", false) => {
            set("cpu.cfs_period_us", PERIOD.to_string())?;
            set("cpu.cfs_quota_us", quota.to_string())
        }
        _ => set("pids.max", limits.pids.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        memory: 64 << 20,
        cpu: 150,
        pids: 20,
    };

    #[test]
    fn limits_are_written_as_each_version_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group::new(dir.path(), "machines", "vm-1");
        assert!(group.make(LIMITS).is_empty() && !group.exists());
        // Version 1, memory and cpu only; the kernel makes the files of a new folder, here it is done by hand.
        for (c, files) in [
            ("memory", &["memory.limit_in_bytes"][..]),
            ("cpu", &["cpu.cfs_period_us", "cpu.cfs_quota_us"]),
        ] {
            let folder = dir.path().join(c).join("machines/vm-1");
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|f| fs::write(folder.join(f), "").unwrap());
        }
        assert_eq!(group.make(LIMITS), ["memory", "cpu"]);
        let read = |p: &str| fs::read_to_string(dir.path().join(p)).unwrap();
        assert_eq!(read("memory/machines/vm-1/memory.limit_in_bytes"), "67108864");
        assert_eq!(read("cpu/machines/vm-1/cpu.cfs_quota_us"), "150000");
        group.admit(7).unwrap();
        // Nothing is believed that cannot be read back.
        assert_eq!(group.holding(LIMITS, 7), ["memory", "cpu"]);
        assert!(group.holding(LIMITS, 8).is_empty());
        let more = Limits {
            memory: 1 << 30,
            ..LIMITS
        };
        assert_eq!(group.holding(more, 7), ["cpu"]);
        assert_eq!(read("cpu/machines/vm-1/cgroup.procs"), "7");
        // Version 2.
        let two = tempfile::tempdir().unwrap();
        fs::write(two.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        let group = Group::new(two.path(), "machines", "vm-1");
        let folder = two.path().join("machines/vm-1");
        fs::create_dir_all(&folder).unwrap();
        for f in ["memory.max", "cpu.max"] {
            fs::write(folder.join(f), "").unwrap();
        }
        assert_eq!(group.make(LIMITS), ["memory", "cpu"]);
        assert_eq!(
            fs::read_to_string(folder.join("cpu.max")).unwrap(),
            "150000 100000"
        );
    }

    #[test]
    fn a_real_group_holds_a_process_where_the_kernel_lets_us() {
        let group = Group::new(
            Path::new("/sys/fs/cgroup"),
            "virtengine-test",
            &format!("t-{}", std::process::id()),
        );
        let holding = group.make(LIMITS);
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        if !holding.is_empty() {
            group.admit(child.id()).unwrap();
            let mine = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
            assert!(mine.contains("virtengine-test/t-"), "{mine}");
            assert!(group.exists());
            assert_eq!(group.holding(LIMITS, child.id()), holding);
            assert!(group.holding(LIMITS, std::process::id()).is_empty());
            assert!(!holding.contains(&"memory") || group.resident_mib().is_some());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        group.remove().unwrap();
        assert!(!group.exists());
        group.remove().unwrap();
    }
}
