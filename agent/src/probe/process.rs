//! Whether a daemon runs, by its name in `/proc`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{line, names_in};

/// Above, accounts are people's: a daemon belongs to the system (or to whom the agent runs as).
const SYSTEM_ACCOUNTS: u32 = 1000;

/// A daemon; its process is remembered, so that `/proc` is not walked each time.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    pid: Option<u32>,
}

impl Daemon {
    /// By its name as in `/proc/<pid>/comm` (at most 15 characters).
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, pid: None }
    }

    /// Its process id; none if it does not run.
    pub fn find(&mut self, proc: &Path) -> Option<u32> {
        if self.pid.is_none_or(|pid| !is(proc, pid, self.name)) {
            self.pid = all_named(proc, self.name).next();
        }
        self.pid
    }

    /// Whether it runs; none where other users' processes are hidden (`hidepid`).
    pub fn runs(&mut self, proc: &Path) -> Option<bool> {
        if self.find(proc).is_some() {
            return Some(true);
        }
        proc.join("1").exists().then_some(false)
    }
}

/// Processes of the system with this name.
pub fn all_named(proc: &Path, name: &'static str) -> impl Iterator<Item = u32> {
    names_in(proc)
        .into_iter()
        .filter_map(|n| n.parse::<u32>().ok())
        .filter(move |pid| is(proc, *pid, name))
}

fn is(proc: &Path, pid: u32, name: &str) -> bool {
    let dir = proc.join(pid.to_string());
    let ours = || {
        let owner = std::fs::metadata(&dir).ok()?.uid();
        Some(owner < SYSTEM_ACCOUNTS || owner == rustix::process::geteuid().as_raw())
    };
    line(&dir.join("comm")).is_some_and(|comm| comm == name) && ours() == Some(true)
}

/// A process's arguments, separated by zero bytes.
#[must_use]
pub fn command_line(proc: &Path, pid: u32) -> Option<String> {
    crate::files::read_text(&proc.join(pid.to_string()).join("cmdline"), 64 << 10).ok()
}

/// Value of the command line's `option`: `-N name` or `-Nname`.
#[must_use]
pub fn option(proc: &Path, pid: u32, option: &str) -> Option<String> {
    let text = command_line(proc, pid)?;
    let mut words = text.split('\0');
    while let Some(word) = words.next() {
        match word.strip_prefix(option) {
            Some("") => return words.next().filter(|w| !w.is_empty()).map(str::to_owned),
            Some(value) => return Some(value.to_owned()),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn process(proc: &Path, pid: u32, comm: &str, cmdline: &str) {
        let dir = proc.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(dir.join("cmdline"), cmdline).unwrap();
    }

    #[test]
    fn a_daemon_is_found_by_its_name_and_missed_when_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::new("munged");
        assert_eq!(daemon.runs(dir.path()), None);
        process(dir.path(), 1, "systemd", "");
        assert_eq!(daemon.runs(dir.path()), Some(false));
        process(dir.path(), 77, "munged", "/usr/sbin/munged\0");
        assert_eq!(
            (daemon.runs(dir.path()), daemon.find(dir.path())),
            (Some(true), Some(77))
        );
        fs::remove_dir_all(dir.path().join("77")).unwrap();
        assert_eq!(daemon.runs(dir.path()), Some(false));
        process(dir.path(), 78, "munged", "");
        // Another process with the same number is not the daemon.
        process(dir.path(), 77, "bash", "");
        assert_eq!(daemon.find(dir.path()), Some(78));
    }

    #[test]
    fn a_person_cannot_pose_as_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        process(dir.path(), 1, "init", "");
        process(dir.path(), 5, "slurmd", "");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path().join("5"), Some(1001), Some(1001)).unwrap();
            assert_eq!(Daemon::new("slurmd").runs(dir.path()), Some(false));
            std::os::unix::fs::chown(dir.path().join("5"), Some(64), Some(64)).unwrap();
        }
        assert_eq!(Daemon::new("slurmd").runs(dir.path()), Some(true));
    }

    #[test]
    fn options_are_read_from_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        process(dir.path(), 5, "slurmd", "/usr/sbin/slurmd\0-D\0-N\0gpu07\0");
        process(dir.path(), 6, "slurmd", "slurmd\0-Ngpu08\0-D\0");
        process(dir.path(), 7, "slurmd", "slurmd\0-D\0-N\0");
        assert_eq!(option(dir.path(), 5, "-N").as_deref(), Some("gpu07"));
        assert_eq!(option(dir.path(), 6, "-N").as_deref(), Some("gpu08"));
        assert_eq!(option(dir.path(), 7, "-N"), None);
        assert_eq!(option(dir.path(), 8, "-N"), None);
    }
}
