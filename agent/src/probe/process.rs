//! Processes as `/proc` shows them: whether a daemon runs, by its name, and when one was started.

use std::cell::LazyCell;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::{Roots, line};
use crate::files::read_text;

/// Above, accounts are people's: a daemon belongs to the system (or to whom the agent runs as).
const SYSTEM_ACCOUNTS: u32 = 1000;
/// Accounts of daemons that sites make under any number, so that it is the same on all nodes.
const OF_DAEMONS: [&str; 2] = ["munge", "slurm"];
/// Bytes of `passwd` that are read.
const PASSWD: u64 = 4 << 20;

/// Every so many looks at `/proc` all processes are looked at anew: one may have become another.
const AFRESH: u32 = 16;

/// Processes of the system with one name. Opening a file of each process on a busy node costs more than all else that
/// is measured there, so those with other names are looked at twice and then let alone.
#[derive(Debug)]
pub struct Processes {
    name: &'static str,
    looks: u32,
    /// Seen once with another name: perhaps on their way to this one. Rising.
    once: Vec<u32>,
    /// Others. Rising.
    others: Vec<u32>,
    /// Of this name, but somebody's who may pose as another. Rising.
    strange: Vec<u32>,
}

/// What a process is to who looks for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// One of that name, of the system.
    It,
    /// One of that name, of anybody.
    Strange,
    /// Another.
    Other,
}

impl Processes {
    /// By the name in `/proc/<pid>/comm` (at most 15 characters).
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            looks: 0,
            once: Vec::new(),
            others: Vec::new(),
            strange: Vec::new(),
        }
    }

    /// Their process ids, rising.
    pub fn find(&mut self, roots: &Roots) -> Vec<u32> {
        if self.looks.is_multiple_of(AFRESH) {
            self.once.clear();
            self.others.clear();
            self.strange.clear();
        }
        self.looks = self.looks.wrapping_add(1);
        let (mut found, mut once, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut strange = Vec::new();
        let accounts = accounts(&roots.etc);
        for pid in pids(&roots.proc) {
            let known = self.others.binary_search(&pid).is_ok();
            let seen = if !known {
                look(&roots.proc, pid, self.name, &accounts)
            } else if self.strange.binary_search(&pid).is_ok() {
                Seen::Strange
            } else {
                Seen::Other
            };
            if seen == Seen::It {
                found.push(pid);
                continue;
            }
            if seen == Seen::Strange {
                strange.push(pid);
            }
            if known || self.once.binary_search(&pid).is_ok() {
                others.push(pid);
            } else {
                once.push(pid);
            }
        }
        (self.once, self.others, self.strange) = (once, others, strange);
        found
    }
}

/// Every process id, rising.
fn pids(proc: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(proc) else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// A daemon; its process is remembered, so that `/proc` is not walked each time.
#[derive(Debug)]
pub struct Daemon {
    processes: Processes,
    found: Option<Found>,
    is_new: bool,
}

/// A process with its name's file, which is this process's alone: whatever gets its number later is another.
#[derive(Debug)]
struct Found {
    pid: u32,
    comm: File,
}

impl Found {
    fn open(proc: &Path, pid: u32) -> Option<Self> {
        let comm = File::open(proc.join(pid.to_string()).join("comm")).ok()?;
        Some(Self { pid, comm })
    }

    /// Whether it has not ended, and is still called so.
    fn is(&self, name: &str) -> bool {
        let mut text = [0; 32];
        let read = self.comm.read_at(&mut text, 0).unwrap_or(0);
        let text = text.get(..read).unwrap_or_default();
        // In a recorded tree a process's file ends with it, and can be read on.
        text.trim_ascii() == name.as_bytes() && self.comm.metadata().is_ok_and(|m| m.nlink() > 0)
    }
}

impl Daemon {
    /// By its name as in `/proc/<pid>/comm` (at most 15 characters).
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            processes: Processes::named(name),
            found: None,
            is_new: false,
        }
    }

    /// Its process id; none if it does not run.
    pub fn find(&mut self, roots: &Roots) -> Option<u32> {
        let name = self.processes.name;
        if !self.found.as_ref().is_some_and(|f| f.is(name)) {
            let pid = self.processes.find(roots).first().copied();
            let opened = pid.and_then(|pid| Found::open(&roots.proc, pid));
            // It may have ended since, and another have got its number before that was opened.
            let accounts = accounts(&roots.etc);
            self.found = opened.filter(|f| look(&roots.proc, f.pid, name, &accounts) == Seen::It);
            self.is_new = true;
        }
        self.found.as_ref().map(|f| f.pid)
    }

    /// Whether it was looked for since the last call: what it was started with may be another now.
    pub fn is_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Whether it runs; none where other users' processes are hidden (`hidepid=2`), or their names are (`hidepid=1`), and
    /// where one of its name runs that anybody may have started: it may be the daemon, under an account that is not known.
    pub fn runs(&mut self, roots: &Roots) -> Option<bool> {
        if self.find(roots).is_some() {
            return Some(true);
        }
        if !self.processes.strange.is_empty() {
            return None;
        }
        line(&roots.proc.join("1/comm")).map(|_| false)
    }
}

/// The accounts of this host, read once somebody asks for them.
fn accounts(etc: &Path) -> LazyCell<String, impl FnOnce() -> String> {
    LazyCell::new(move || read_text(&etc.join("passwd"), PASSWD).unwrap_or_default())
}

fn look(proc: &Path, pid: u32, name: &str, accounts: &LazyCell<String, impl FnOnce() -> String>) -> Seen {
    let dir = proc.join(pid.to_string());
    if line(&dir.join("comm")).is_none_or(|comm| comm != name) {
        return Seen::Other;
    }
    match std::fs::metadata(&dir) {
        Ok(meta) if is_of_the_system(meta.uid(), accounts) => Seen::It,
        Ok(_) => Seen::Strange,
        // It has ended.
        Err(_) => Seen::Other,
    }
}

/// Whether no person works under this number. That a process lies in `system.slice` would say nothing: so do jobs of Slurm
/// and of cron.
fn is_of_the_system(owner: u32, accounts: &LazyCell<String, impl FnOnce() -> String>) -> bool {
    owner < SYSTEM_ACCOUNTS || owner == rustix::process::geteuid().as_raw() || is_of_a_daemon(owner, accounts)
}

/// Whether this is the number of an account that is made for a daemon.
fn is_of_a_daemon(owner: u32, passwd: &str) -> bool {
    passwd.lines().any(|l| {
        let mut fields = l.split(':');
        let named = fields.next().is_some_and(|name| OF_DAEMONS.contains(&name));
        named && fields.nth(1).and_then(|uid| uid.parse().ok()) == Some(owner)
    })
}

/// Clock ticks after boot at which a process was started, by its folder in `/proc`; none if it is gone or a zombie.
#[must_use]
pub fn started(process: &Path) -> Option<u64> {
    let stat = line(&process.join("stat"))?;
    // The name in brackets may hold anything; proc(5) counts the state behind it as field 3, the start as 22.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A process's arguments, separated by zero bytes.
#[must_use]
pub fn command_line(proc: &Path, pid: u32) -> Option<String> {
    read_text(&proc.join(pid.to_string()).join("cmdline"), 64 << 10).ok()
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
    use std::time::{Duration, Instant};

    use super::*;

    fn process(proc: &Path, pid: u32, comm: &str, cmdline: &str) {
        let dir = proc.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(dir.join("cmdline"), cmdline).unwrap();
    }

    fn roots(proc: &Path) -> Roots {
        Roots {
            proc: proc.to_owned(),
            etc: proc.join("etc"),
            ..Roots::default()
        }
    }

    #[test]
    fn a_daemon_is_found_by_its_name_and_missed_when_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        let mut daemon = Daemon::new("munged");
        assert_eq!(daemon.runs(&roots), None);
        // One whose name may not be read.
        fs::create_dir(dir.path().join("1")).unwrap();
        assert_eq!(daemon.runs(&roots), None);
        process(dir.path(), 1, "systemd", "");
        assert_eq!(daemon.runs(&roots), Some(false));
        process(dir.path(), 77, "munged", "/usr/sbin/munged\0");
        assert_eq!((daemon.runs(&roots), daemon.find(&roots)), (Some(true), Some(77)));
        fs::remove_dir_all(dir.path().join("77")).unwrap();
        assert_eq!(daemon.runs(&roots), Some(false));
        process(dir.path(), 78, "munged", "");
        // Another process with the same number is not the daemon.
        process(dir.path(), 77, "bash", "");
        assert_eq!(daemon.find(&roots), Some(78));
        assert_eq!((daemon.is_new(), daemon.is_new()), (true, false));
        assert_eq!(daemon.find(&roots), Some(78));
        assert!(!daemon.is_new());
        // A daemon that was started again under its number is another one.
        fs::remove_dir_all(dir.path().join("78")).unwrap();
        process(dir.path(), 78, "munged", "");
        assert_eq!((daemon.find(&roots), daemon.is_new()), (Some(78), true));
        // So is one that has become another program.
        fs::write(dir.path().join("78/comm"), "bash\n").unwrap();
        assert_eq!(daemon.find(&roots), None);
    }

    #[test]
    fn a_process_that_has_ended_is_not_found_by_what_is_open_of_it() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let proc = Path::new("/proc");
        let found = Found::open(proc, child.id()).unwrap();
        // It is handed over a moment before the kernel gives it its name.
        let began = Instant::now();
        while !found.is("sleep") {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found.is("sleep"));
    }

    #[test]
    fn processes_are_looked_at_twice_and_afresh_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path();
        let roots = roots(proc);
        let mut steps = Processes::named("slurmstepd");
        process(proc, 7, "slurmd", "");
        process(proc, 8, "slurmstepd", "");
        process(proc, 9, "bash", "");
        assert_eq!(steps.find(&roots), [8]);
        // It was caught on its way from slurmd to slurmstepd.
        process(proc, 7, "slurmstepd", "");
        assert_eq!(steps.find(&roots), [7, 8]);
        // Seen twice as a shell: only the look afresh finds out.
        process(proc, 9, "slurmstepd", "");
        let seen: Vec<usize> = (0..AFRESH).map(|_| steps.find(&roots).len()).collect();
        assert_eq!((seen[0], seen.last()), (2, Some(&3)), "{seen:?}");
        fs::remove_dir_all(proc.join("8")).unwrap();
        assert_eq!(steps.find(&roots), [7, 9]);
    }

    #[test]
    fn a_person_cannot_pose_as_a_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        process(dir.path(), 1, "init", "");
        process(dir.path(), 5, "slurmd", "");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path().join("5"), Some(1001), Some(1001)).unwrap();
            let mut daemon = Daemon::new("slurmd");
            // Nor does anybody learn that none runs: it may be one, under an account of the site's.
            for _ in 0..AFRESH * 2 {
                assert_eq!((daemon.find(&roots), daemon.runs(&roots)), (None, None));
            }
            std::os::unix::fs::chown(dir.path().join("5"), Some(64), Some(64)).unwrap();
        }
        assert_eq!(Daemon::new("slurmd").runs(&roots), Some(true));
    }

    #[test]
    fn a_daemon_may_run_under_an_account_of_its_name_whatever_its_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1002:1002::/:/bin/sh\nmunge:x:1001:991::/:/sbin/nologin\n\
                      slurmy:x:1003:1003::/:/bin/sh\nbroken:1004\nslurm:x:1005:1005::/:/bin/sh\n";
        let trusted: Vec<u32> = (991..1010).filter(|n| is_of_a_daemon(*n, passwd)).collect();
        assert_eq!(trusted, [1001, 1005]);
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        process(dir.path(), 5, "munged", "");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path().join("5"), Some(1001), Some(991)).unwrap();
            assert_eq!(Daemon::new("munged").find(&roots), None);
            fs::create_dir(&roots.etc).unwrap();
            fs::write(roots.etc.join("passwd"), passwd).unwrap();
        }
        assert_eq!(Daemon::new("munged").find(&roots), Some(5));
    }

    #[test]
    fn accounts_are_read_once_for_however_many_strange_processes_and_not_without_one() {
        let read = std::cell::Cell::new(0);
        let accounts = LazyCell::new(|| {
            read.set(read.get() + 1);
            "munge:x:1999991:991::/:/sbin/nologin\n".to_owned()
        });
        assert!(is_of_the_system(0, &accounts));
        assert_eq!(read.get(), 0);
        let trusted: Vec<u32> = (1_999_990..2_000_000)
            .filter(|owner| is_of_the_system(*owner, &accounts))
            .collect();
        assert_eq!((trusted, read.get()), (vec![1_999_991], 1));
    }

    #[test]
    fn the_start_of_a_process_is_told_whatever_its_name_and_none_of_one_that_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let at = |state: &str| {
            let text = format!("7 (a) Z 1) {state} 1 7 7 0 -1 4194560 9 9 9 9 3 3 3 3 20 0 1 0 4711 1 2 3\n");
            fs::write(dir.path().join("stat"), text).unwrap();
            started(dir.path())
        };
        assert_eq!(at("S"), Some(4711));
        for ended in ["Z", "X", "x"] {
            assert_eq!(at(ended), None);
        }
        fs::write(dir.path().join("stat"), "7 (a) S 1\n").unwrap();
        assert_eq!(started(dir.path()), None);
        fs::remove_file(dir.path().join("stat")).unwrap();
        assert_eq!(started(dir.path()), None);
        assert!(started(Path::new("/proc/self")).is_some());
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
