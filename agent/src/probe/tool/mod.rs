//! Runs a program of the system and reads what it prints, without ever waiting for it beyond a deadline.
//!
//! Absolute path, argument vector, empty environment but for what is named, no input, output up to a bound, its own
//! process group, killed as a whole at the deadline. What cannot be killed (a process in uninterruptible sleep) is
//! kept and never started a second time before it has ended.

mod ended;
mod error;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use zeroize::Zeroize as _;

pub use error::ToolError;

use super::source::lines;
use crate::files::Owner;
use ended::{settle, wait};

/// What is kept of the error output.
const STDERR_LIMIT: usize = 1024;
/// How long a killed process may take to go.
const GRACE: Duration = Duration::from_millis(200);
/// Where sites install programs; the first that has one wins.
pub(in crate::probe) const FOLDERS: [&str; 9] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
    "/opt/slurm/bin",
    "/opt/slurm/sbin",
    "/snap/bin",
];

/// Absolute path of the program `name`: in `folder` if one is named, else where sites install programs.
#[must_use]
pub fn find(name: &str, folder: Option<&Path>) -> Option<PathBuf> {
    match folder {
        Some(folder) => Some(folder.join(name)).filter(|p| p.is_file()),
        None => FOLDERS
            .iter()
            .map(|f| Path::new(f).join(name))
            .find(|p| p.is_file()),
    }
}

/// One program.
#[derive(Debug)]
pub struct Tool {
    path: PathBuf,
    environment: Vec<(&'static str, OsString)>,
    deadline: Duration,
    limit: usize,
    user: Option<Owner>,
    left: Option<Child>,
}

/// What it printed, having ended with 0.
pub type Printed = Vec<u8>;

impl Tool {
    /// `path` must be absolute: nothing is looked up.
    #[must_use]
    pub fn new(path: PathBuf, deadline: Duration, limit: usize) -> Self {
        let environment = vec![
            ("PATH", "/usr/bin:/bin:/usr/sbin:/sbin".into()),
            ("LC_ALL", "C".into()),
        ];
        Self {
            path,
            environment,
            deadline,
            limit,
            user: None,
            left: None,
        }
    }

    /// Runs as another user; only root can.
    #[must_use]
    pub fn as_user(mut self, user: Option<Owner>) -> Self {
        self.user = user;
        self
    }

    /// Adds to its environment.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// The program.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it once.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn run<S: AsRef<OsStr>>(&mut self, arguments: &[S]) -> Result<Printed, ToolError> {
        self.run_into(arguments, &[], |_| {})
    }

    /// Runs it once with `input`, which must fit into a pipe (4 KiB always do): secrets go this way.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn feed<S: AsRef<OsStr>>(&mut self, arguments: &[S], input: &[u8]) -> Result<Printed, ToolError> {
        self.run_into(arguments, input, |_| {})
    }

    /// Runs it once; its exit code, whatever it is, and what it printed.
    ///
    /// # Errors
    /// See [`ToolError`]; a program that was ended by a signal has failed.
    pub fn ask<S: AsRef<OsStr>>(&mut self, arguments: &[S]) -> Result<(i32, Printed), ToolError> {
        let (status, printed, error) = self.end(arguments, &[], |_| {})?;
        match status.code() {
            Some(code) => Ok((code, printed)),
            None => Err(self.failed(status, &error)),
        }
    }

    /// Runs it once and hands over each line as it comes, so that a long output takes no memory; the bound then holds
    /// for one line. Lines may have come when it fails in the end.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn run_lines<S: AsRef<OsStr>>(
        &mut self,
        arguments: &[S],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), ToolError> {
        let rest = self.run_into(arguments, &[], |buffer| {
            if let Some(last) = buffer.iter().rposition(|b| *b == b'\n') {
                let rest = buffer.split_off(last.saturating_add(1));
                let whole = std::mem::replace(buffer, rest);
                lines(&whole).filter(|l| !l.is_empty()).for_each(&mut each);
            }
        })?;
        if !rest.is_empty() {
            each(&rest);
        }
        Ok(())
    }

    fn run_into<S: AsRef<OsStr>>(
        &mut self,
        arguments: &[S],
        input: &[u8],
        sink: impl FnMut(&mut Vec<u8>),
    ) -> Result<Printed, ToolError> {
        let (status, printed, error) = self.end(arguments, input, sink)?;
        if status.success() {
            Ok(printed)
        } else {
            Err(self.failed(status, &error))
        }
    }

    fn failed(&self, status: ExitStatus, error: &[u8]) -> ToolError {
        ToolError::Failed {
            path: self.shown(),
            status: status.to_string(),
            message: String::from_utf8_lossy(error).trim().to_owned(),
        }
    }

    /// How it ended by itself, and both its outputs.
    fn end<S: AsRef<OsStr>>(
        &mut self,
        arguments: &[S],
        input: &[u8],
        sink: impl FnMut(&mut Vec<u8>),
    ) -> Result<(ExitStatus, Printed, Printed), ToolError> {
        self.reap()?;
        let end = Instant::now().checked_add(self.deadline);
        let mut command = Command::new(&self.path);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = command
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .current_dir("/")
            .process_group(0)
            .stdin(if input.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| ToolError::Start {
                path: self.shown(),
                source,
            })?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not want it tells by its exit.
            stdin.write_all(input).ok();
        }
        settle(&child, end);
        let read = self.read(&mut child, end, sink);
        let status = match &read {
            Ok(_) => wait(&mut child, end),
            Err(_) => Ok(None),
        };
        let (out, err) = match (read, status) {
            (Ok(output), Ok(Some(status))) => return Ok((status, output.0, output.1)),
            (Ok(_), Ok(None)) => (None, None),
            (Ok(_), Err(e)) => (None, Some(e)),
            (Err(e), _) => (Some(e), None),
        };
        self.kill(child);
        Err(match (out, err) {
            (Some(e), _) => e,
            (None, Some(source)) => ToolError::Io {
                path: self.shown(),
                source,
            },
            (None, None) => self.late(),
        })
    }

    /// Both streams until their end.
    fn read(
        &self,
        child: &mut Child,
        end: Option<Instant>,
        mut sink: impl FnMut(&mut Vec<u8>),
    ) -> Result<(Printed, Printed), ToolError> {
        let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let broken = |source| ToolError::Io {
            path: self.shown(),
            source,
        };
        while stdout.is_some() || stderr.is_some() {
            let left = end.map_or(Duration::ZERO, |e| e.saturating_duration_since(Instant::now()));
            let timeout = Timespec::try_from(left).map_err(|_| self.late())?;
            let mut fds = Vec::with_capacity(2);
            fds.extend(stdout.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
            fds.extend(stderr.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(self.late()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(broken(e.into())),
            }
            let mut ready = fds.iter().map(|f| !f.revents().is_empty());
            let out_ready = stdout.is_some() && ready.next() == Some(true);
            let err_ready = stderr.is_some() && ready.next() == Some(true);
            drop(fds);
            if out_ready && !chunk(stdout.as_mut(), &mut out, usize::MAX).map_err(broken)? {
                stdout = None;
            }
            if err_ready && !chunk(stderr.as_mut(), &mut err, STDERR_LIMIT).map_err(broken)? {
                stderr = None;
            }
            sink(&mut out);
            if out.len() > self.limit {
                return Err(ToolError::TooLong {
                    path: self.shown(),
                    limit: self.limit,
                });
            }
        }
        Ok((out, err))
    }

    fn reap(&mut self) -> Result<(), ToolError> {
        let Some(child) = &mut self.left else {
            return Ok(());
        };
        if let Ok(None) = child.try_wait() {
            return Err(ToolError::Stuck {
                path: self.path.display().to_string(),
                pid: child.id(),
            });
        }
        self.left = None;
        Ok(())
    }

    fn kill(&mut self, mut child: Child) {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // Gone already: as good as killed.
            kill_process_group(group, Signal::KILL).ok();
        }
        if !matches!(wait(&mut child, Instant::now().checked_add(GRACE)), Ok(Some(_))) {
            self.left = Some(child);
        }
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn late(&self) -> ToolError {
        ToolError::Deadline {
            path: self.shown(),
            deadline: self.deadline,
        }
    }
}

/// Appends what is there, keeping at most `limit` bytes; false at the end of the stream.
fn chunk(stream: Option<&mut impl Read>, into: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let mut buffer = [0u8; 4096];
    let Some(stream) = stream else { return Ok(false) };
    let n = match stream.read(&mut buffer) {
        Ok(n) => n,
        Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(true),
        Err(e) => return Err(e),
    };
    let room = limit.saturating_sub(into.len());
    let came = buffer.get_mut(..n).unwrap_or_default();
    into.extend(came.iter().take(room));
    // It may be a secret that came.
    came.zeroize();
    Ok(n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(deadline_ms: u64, limit: usize) -> Tool {
        Tool::new("/bin/sh".into(), Duration::from_millis(deadline_ms), limit)
    }

    #[test]
    fn what_a_program_prints_is_read_and_its_failure_is_told_in_its_words() {
        assert_eq!(shell(5000, 100).run(&["-c", "echo hello"]).unwrap(), b"hello\n");
        let e = shell(5000, 100)
            .run(&["-c", "echo out; echo broken >&2; exit 3"])
            .unwrap_err()
            .to_string();
        assert!(e.contains("exit status: 3") && e.contains("broken"), "{e}");
        let e = Tool::new("/no/such".into(), Duration::from_secs(1), 1)
            .run::<&str>(&[])
            .unwrap_err();
        assert!(matches!(e, ToolError::Start { .. }));
    }

    #[test]
    fn the_environment_is_empty_but_for_what_is_named() {
        let text = shell(5000, 4096)
            .with("SLURM_CONF", "/x")
            .run(&["-c", "env"])
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut names: Vec<&str> = text.lines().filter_map(|l| l.split('=').next()).collect();
        names.retain(|n| !["_", "PWD", "OLDPWD", "SHLVL"].contains(n));
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH", "SLURM_CONF"]);
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 60 & echo $! > {}; wait", pid.display());
        let start = Instant::now();
        let e = shell(2000, 100).run(&["-c", &script]).unwrap_err();
        assert!(matches!(e, ToolError::Deadline { .. }), "{e}");
        assert!(start.elapsed() < Duration::from_secs(30));
        let pid = std::fs::read_to_string(pid).unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z")
        };
        for _ in 0..1000 {
            if gone() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("its child {pid} lives on");
    }

    #[test]
    fn a_program_that_closes_its_output_and_stays_is_killed_too() {
        let e = shell(300, 100)
            .run(&["-c", "exec >&- 2>&-; sleep 60"])
            .unwrap_err();
        assert!(matches!(e, ToolError::Deadline { .. }), "{e}");
    }

    #[test]
    fn too_much_output_is_refused_and_errors_are_cut() {
        let e = shell(5000, 10_000).run(&["-c", "yes"]).unwrap_err();
        assert!(matches!(e, ToolError::TooLong { .. }), "{e}");
        let e = shell(5000, 10)
            .run(&["-c", "head -c 300000 /dev/zero >&2; exit 1"])
            .unwrap_err();
        assert!(e.to_string().len() < 1200);
    }

    #[test]
    fn lines_are_handed_over_whole_however_long_the_output_is() {
        let mut sum = 0u64;
        shell(5000, 100)
            .run_lines(&["-c", "seq 1 20000; printf 7"], |l| {
                sum += std::str::from_utf8(l).unwrap().parse::<u64>().unwrap();
            })
            .unwrap();
        assert_eq!(sum, 20_000 * 20_001 / 2 + 7);
        let e = shell(5000, 100)
            .run_lines(&["-c", "yes | tr -d '\\n'"], |_| {})
            .unwrap_err();
        assert!(matches!(e, ToolError::TooLong { .. }), "{e}");
    }

    #[test]
    fn a_stuck_process_is_not_started_a_second_time() {
        let mut tool = shell(5000, 100);
        // Stands for a process that a kill does not end.
        tool.left = Some(Command::new("/bin/sleep").arg("60").spawn().unwrap());
        assert!(matches!(
            tool.run(&["-c", "echo x"]),
            Err(ToolError::Stuck { .. })
        ));
        let child = tool.left.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tool.run(&["-c", "echo x"]).unwrap(), b"x\n");
    }
}
