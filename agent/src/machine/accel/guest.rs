//! The probe's guest: a stock kernel without a root file system. It prints its command line when it starts and, having
//! initialised everything, that it cannot mount its root; `panic=-1` then ends it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Accel, Evidence, Stopped};
use crate::files::{Durability, FileError, Owner, Replace, at, write};
use crate::machine::arguments::common;
use crate::probe::tool::find;
use crate::task::Stop;
use crate::task::exec::{ExecError, Program};
use crate::task::jail::Jail;

/// What a kernel says that has come through: `init/do_mounts.c`, unchanged since Linux 2.4.
const THROUGH: &str = "VFS: Unable to mount root fs";
const MEMORY_MIB: u32 = 256;
/// How `timeout` ends where it could not begin a process; QEMU never does.
const TIMEOUT_FAILED: &str = "exit code 125";

/// The kernel that runs, or the newest, in the host's folder of kernels.
pub(super) fn kernel(boot: &Path) -> Option<PathBuf> {
    let running = rustix::system::uname();
    let running = boot.join(format!("vmlinuz-{}", running.release().to_string_lossy()));
    if running.is_file() {
        return Some(running);
    }
    let entries = fs::read_dir(boot).ok()?;
    let mut all: Vec<(Vec<u64>, PathBuf)> = entries
        .filter_map(|e| {
            let path = e.ok()?.path();
            let version = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            path.is_file().then(|| (numbers(&version), path))
        })
        .collect();
    all.sort();
    all.pop().map(|(_, path)| path)
}

/// The numbers of a version, so that 6.10 comes after 6.9.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// A kernel that whoever the guest runs as can read: some distributions let root alone.
#[derive(Debug)]
pub(super) struct Kernel {
    path: PathBuf,
    copied: bool,
}

impl Kernel {
    /// The file itself, or a copy in `folder` where the guest does not run as we do.
    pub(super) fn readable(kernel: &Path, folder: &Path, user: Option<Owner>) -> Result<Self, FileError> {
        if user.is_none() {
            return Ok(Self {
                path: kernel.to_owned(),
                copied: false,
            });
        }
        let path = folder.join(".probe.kernel");
        let bytes = fs::read(kernel).map_err(at("read", kernel))?;
        write(&path, &bytes, 0o444, Replace::Yes, Durability::Atomic)?;
        Ok(Self { path, copied: true })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.copied {
            // Left behind, it is replaced by the next.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Runs the guest once, at most for `limit`, as `user`, within the bounds that every program has.
///
/// # Errors
/// It was `stop` that ended it, or it was not begun: nothing was seen.
pub(super) fn run(
    qemu: &Path,
    kernel: &Kernel,
    accel: Accel,
    limit: Duration,
    user: Option<Owner>,
    (now, stop): (u64, &Stop),
) -> Result<Evidence, Stopped> {
    let start = Instant::now();
    let mut seen = Seen::default();
    let mark = crate::random::bytes::<8>().map_or_else(|_| now.to_string(), hex::encode);
    let mut arguments = common(accel, 1, MEMORY_MIB);
    let append = format!("console=ttyS0 panic=-1 virtengine_probe={mark}");
    for word in ["-no-reboot", "-serial", "stdio", "-append", &append] {
        arguments.push(word.to_owned());
    }
    arguments.extend(["-kernel".to_owned(), kernel.path.display().to_string()]);
    let ended = bounded(qemu, limit)
        .vector(arguments)
        .within(limit)
        .as_user(user)
        // As a machine that has no folder.
        .jailed(Jail::Machine(PathBuf::from("/nonexistent")))
        .run_lines(stop, &mut |line| seen.line(line, &mark));
    let error = match ended {
        // The host had no thread, process or memory left: that says nothing of its accelerators.
        Err(e) if was_not_begun(&e) => return Err(Stopped(e.into())),
        ended => ended.err(),
    };
    let took = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Evidence {
        works: error.is_none() && seen.begun && seen.through,
        detail: seen.tell(error.as_ref(), limit),
        took_ms: took,
        at: now,
    })
}

fn was_not_begun(e: &ExecError) -> bool {
    match e {
        ExecError::Stopped { .. } | ExecError::Start { .. } => true,
        ExecError::Failed { status, .. } => status == TIMEOUT_FAILED,
        _ => false,
    }
}

/// QEMU, which a hanging guest does not outlive the agent by.
fn bounded(qemu: &Path, limit: Duration) -> Program {
    let Some(timeout) = find("timeout", None) else {
        return Program::new(qemu);
    };
    let seconds = limit.as_secs().saturating_add(5).to_string();
    // As GNU's, BSD's and busybox' take it.
    let arguments = ["-s".to_owned(), "KILL".to_owned(), seconds];
    Program::new(&timeout)
        .vector(arguments)
        .vector([qemu.display().to_string()])
}

#[derive(Debug, Default)]
struct Seen {
    begun: bool,
    through: bool,
    last: String,
}

impl Seen {
    fn line(&mut self, line: &[u8], mark: &str) {
        let text = String::from_utf8_lossy(line);
        let printable: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        self.begun |= printable.contains(mark);
        self.through |= printable.contains(THROUGH);
        if !printable.trim().is_empty() {
            self.last = printable.trim().to_owned();
        }
    }

    fn tell(&self, error: Option<&ExecError>, limit: Duration) -> String {
        let last = if self.last.is_empty() {
            "nothing on its console".to_owned()
        } else {
            format!("last on its console: {}", self.last)
        };
        match error {
            None if self.begun && self.through => "a stock kernel ran through".to_owned(),
            None => format!("a stock kernel ended before it had run through; {last}"),
            Some(ExecError::Late { .. }) => {
                format!("a stock kernel hangs: not through within {limit:?}; {last}")
            }
            Some(e) => e.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_that_began_and_came_through_counts() {
        let mut seen = Seen::default();
        seen.line(
            b"\x1b[2JKernel command line: console=ttyS0 virtengine_probe=abcd\r",
            "abcd",
        );
        assert!(seen.begun && !seen.through);
        assert!(
            seen.tell(None, Duration::ZERO)
                .contains("before it had run through")
        );
        let late = ExecError::Late {
            path: PathBuf::new(),
            limit: Duration::from_secs(1),
        };
        assert!(seen.tell(Some(&late), Duration::from_secs(15)).contains("hangs"));
        seen.line(
            b"Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
            "abcd",
        );
        assert_eq!(seen.tell(None, Duration::ZERO), "a stock kernel ran through");
    }

    #[test]
    fn what_was_not_begun_is_no_evidence() {
        let path = PathBuf::from("/x");
        let failed = |status: &str| ExecError::Failed {
            path: path.clone(),
            status: status.to_owned(),
            message: String::new(),
        };
        let start = ExecError::Start {
            path: path.clone(),
            source: std::io::Error::from(std::io::ErrorKind::WouldBlock),
        };
        assert!(was_not_begun(&start) && was_not_begun(&failed("exit code 125")));
        assert!(!was_not_begun(&failed("exit code 1")) && !was_not_begun(&failed("signal: 6 (SIGABRT)")));
    }

    #[test]
    fn a_bounded_program_ends_with_its_own_code() {
        let shell = |script: &str| {
            let words = ["-c", script].map(str::to_owned);
            bounded(Path::new("/bin/sh"), Duration::ZERO).vector(words)
        };
        let stop = Stop::after(Duration::from_secs(60));
        assert_eq!(shell("exit 7").ask(&stop).unwrap().code, 7);
    }

    #[test]
    fn the_newest_kernel_is_taken_by_number() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kernel(dir.path()), None);
        for name in [
            "vmlinuz-6.9.0-1",
            "vmlinuz-6.10.0-1",
            "config-7",
            "vmlinuz-6.10.0-0",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(kernel(dir.path()), Some(dir.path().join("vmlinuz-6.10.0-1")));
        assert_eq!(kernel(Path::new("/nonexistent")), None);
    }
}
