//! Runs a program of the system: absolute path, argument vector, scrubbed environment, time limit, bounded output, its
//! own process group, no core. The one place in the task domain where another program is started and waited for.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};

use super::failure::Failure;
use super::jail::Jail;
use super::limited::{Limited, PROGRAM};
use super::start;
use super::stop::Stop;
use crate::machine::cgroup::Limits;

/// Output that is kept of each stream unless told otherwise.
const OUTPUT: usize = 64 << 10;
/// How long a program may run unless told otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it is asked whether the task was taken back.
const SLICE: Duration = Duration::from_millis(50);

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// An argument that the program could take for something else.
    #[error("{0:?} cannot be an argument: it begins with - or holds a zero byte")]
    Argument(String),
    /// The path is not absolute, or it cannot be started.
    #[error("{} cannot be started: {source}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ran into its time limit and was killed.
    #[error("{} did not end within {limit:?} and was killed", path.display())]
    Late {
        /// The program.
        path: PathBuf,
        /// Its time.
        limit: Duration,
    },
    /// The task was taken back, or its time is over; the program was killed.
    #[error("{} was killed: {failure}", path.display())]
    Stopped {
        /// The program.
        path: PathBuf,
        /// Why.
        failure: Failure,
    },
    /// It says no.
    #[error("{} failed ({status}): {message}", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// Exit code or signal.
        status: String,
        /// The end of its error output.
        message: String,
    },
}

impl From<ExecError> for Failure {
    fn from(e: ExecError) -> Self {
        match e {
            ExecError::Stopped { failure, .. } => failure,
            ExecError::Late { .. } => Self::new(Code::TaskTimeout, e),
            ExecError::Argument(_) => Self::new(Code::InvalidField, e),
            ExecError::Start { ref source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::new(Code::NotSupported, e)
            }
            e => Self::failed(e),
        }
    }
}

/// What a program printed, and how it ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit code.
    pub code: i32,
    /// The first bytes of its output.
    pub stdout: Vec<u8>,
    /// The first bytes of its error output.
    pub stderr: Vec<u8>,
}

/// One program with its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    input: Vec<u8>,
    limit: Duration,
    output: usize,
    jail: Jail,
    limits: Limits,
}

impl Program {
    /// `path` must be absolute: nothing is looked up.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            arguments: Vec::new(),
            environment: vec![
                ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
                ("LC_ALL", "C".to_owned()),
                ("DEBIAN_FRONTEND", "noninteractive".to_owned()),
            ],
            input: Vec::new(),
            limit: LIMIT,
            output: OUTPUT,
            jail: Jail::System,
            limits: PROGRAM,
        }
    }

    /// Adds an argument that stands in our code.
    #[must_use]
    pub fn flag(mut self, flag: &'static str) -> Self {
        self.arguments.push(flag.to_owned());
        self
    }

    /// Adds a value: of a file, of a task.
    ///
    /// # Errors
    /// [`ExecError::Argument`] for one that the program could take for an option.
    pub fn value(mut self, value: &str) -> Result<Self, ExecError> {
        if value.starts_with('-') || value.contains('\0') {
            return Err(ExecError::Argument(value.chars().take(64).collect()));
        }
        self.arguments.push(value.to_owned());
        Ok(self)
    }

    /// Adds a whole vector that was checked where it was made.
    #[must_use]
    pub(super) fn vector(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Adds to its environment.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Gives it something to read.
    #[must_use]
    pub fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = bytes;
        self
    }

    /// How long it may run.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// What it may do; unless told otherwise, what any program of the system may.
    #[must_use]
    pub fn jailed(mut self, jail: Jail) -> Self {
        self.jail = jail;
        self
    }

    /// What it may take of the host.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How much of its output is kept; it may print more.
    #[must_use]
    pub fn keeping(mut self, bytes: usize) -> Self {
        self.output = bytes;
        self
    }

    /// Runs it; a code other than 0 is an error.
    ///
    /// # Errors
    /// [`ExecError`].
    pub fn run(self, stop: &Stop) -> Result<Output, ExecError> {
        let path = self.path.clone();
        let output = self.ask(stop)?;
        if output.code == 0 {
            return Ok(output);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let tail: String = text.trim().chars().rev().take(400).collect();
        Err(ExecError::Failed {
            path,
            status: format!("exit code {}", output.code),
            message: tail.chars().rev().collect(),
        })
    }

    /// Runs it; its exit code, whatever it is.
    ///
    /// # Errors
    /// [`ExecError`]; one that was ended by a signal has failed.
    pub fn ask(self, stop: &Stop) -> Result<Output, ExecError> {
        let Self {
            path,
            arguments,
            environment,
            input,
            limit,
            output: keep,
            jail,
            limits,
        } = self;
        if !path.is_absolute() {
            let source = io::Error::other("the path is not absolute");
            return Err(ExecError::Start { path, source });
        }
        let (mut command, gate) = match start::command(&path, true) {
            Ok(started) => started,
            Err(source) => return Err(ExecError::Start { path, source }),
        };
        command
            .args(arguments)
            .env_clear()
            .envs(environment)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let group = Limited::new(limits);
        let mut child = match jail.spawn(&mut command) {
            Ok(child) => child,
            Err(source) => return Err(ExecError::Start { path, source }),
        };
        group.admit(child.id());
        if let Some(pid) = pid_of(&child) {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            // Gone already: no core either.
            prlimit(Some(pid), Resource::Core, none).ok();
        }
        let stdin = child.stdin.take();
        // More than a pipe holds must not block us; a program that does not read tells by its exit.
        std::thread::spawn(move || {
            if let Some(mut stdin) = stdin {
                gate.open(&mut stdin).and_then(|()| stdin.write_all(&input)).ok();
            }
        });
        let ended = listen(&mut child, stop, limit, keep);
        if ended.is_err() {
            kill(&mut child);
        }
        match ended {
            Ok((status, stdout, stderr)) => match status.code() {
                Some(code) => match gate.not_begun(code, &stderr) {
                    Some(source) => Err(ExecError::Start { path, source }),
                    None => Ok(Output { code, stdout, stderr }),
                },
                None => Err(ExecError::Failed {
                    path,
                    status: status.to_string(),
                    message: String::from_utf8_lossy(&stderr).trim().to_owned(),
                }),
            },
            Err(Why::Late) => Err(ExecError::Late { path, limit }),
            Err(Why::Stopped(failure)) => Err(ExecError::Stopped { path, failure }),
            Err(Why::Io(source)) => Err(ExecError::Start { path, source }),
        }
    }
}

enum Why {
    Late,
    Stopped(Failure),
    Io(io::Error),
}

type Ended = (std::process::ExitStatus, Vec<u8>, Vec<u8>);

fn listen(child: &mut Child, stop: &Stop, limit: Duration, keep: usize) -> Result<Ended, Why> {
    let end = Instant::now().checked_add(limit);
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        stop.check().map_err(Why::Stopped)?;
        if end.is_some_and(|e| Instant::now() >= e) {
            return Err(Why::Late);
        }
        if stdout.is_none()
            && stderr.is_none()
            && let Some(status) = child.try_wait().map_err(Why::Io)?
        {
            return Ok((status, out, err));
        }
        let slice = Timespec::try_from(SLICE).map_err(|_| Why::Late)?;
        let mut fds = Vec::with_capacity(2);
        fds.extend(stdout.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        fds.extend(stderr.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        match poll(&mut fds, Some(&slice)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Why::Io(e.into())),
        }
        let mut ready = fds.iter().map(|f| !f.revents().is_empty());
        let out_ready = stdout.is_some() && ready.next() == Some(true);
        let err_ready = stderr.is_some() && ready.next() == Some(true);
        drop(fds);
        if out_ready && !chunk(stdout.as_mut(), &mut out, keep).map_err(Why::Io)? {
            stdout = None;
        }
        if err_ready && !chunk(stderr.as_mut(), &mut err, keep).map_err(Why::Io)? {
            stderr = None;
        }
    }
}

/// Keeps at most `keep` bytes in all; false at the end of the stream.
fn chunk(stream: Option<&mut impl io::Read>, into: &mut Vec<u8>, keep: usize) -> io::Result<bool> {
    let mut buffer = [0u8; 8192];
    let Some(stream) = stream else { return Ok(false) };
    match stream.by_ref().read(&mut buffer) {
        Ok(n) => {
            let room = keep.saturating_sub(into.len());
            into.extend(buffer.iter().take(n.min(room)));
            Ok(n > 0)
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(e) => Err(e),
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn kill(child: &mut Child) {
    if let Some(group) = pid_of(child) {
        // Gone already: as good as killed.
        kill_process_group(group, Signal::KILL).ok();
    }
    // A process that hangs in the kernel is left to the kernel.
    for _ in 0..100 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh() -> &'static Path {
        Path::new("/bin/cat")
    }

    fn stop() -> Stop {
        Stop::after(Duration::from_secs(60))
    }

    #[test]
    fn a_value_that_looks_like_an_option_is_refused() {
        for bad in ["-rf", "--help", "a\0b", "-"] {
            assert!(
                matches!(Program::new(sh()).value(bad), Err(ExecError::Argument(_))),
                "{bad:?}"
            );
        }
        assert!(Program::new(sh()).value("a b; $(id)").is_ok());
    }

    #[test]
    fn input_reaches_it_and_output_is_cut_at_its_bound() {
        let input = vec![b'x'; 300_000];
        let out = Program::new(sh())
            .input(input)
            .keeping(1000)
            .run(&stop())
            .unwrap();
        assert_eq!((out.code, out.stdout.len()), (0, 1000));
    }

    #[test]
    fn the_environment_is_ours_alone_and_the_path_absolute() {
        let out = Program::new(Path::new("/usr/bin/env")).run(&stop()).unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let mut names: Vec<&str> = text.lines().map(|l| l.split('=').next().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["DEBIAN_FRONTEND", "LC_ALL", "PATH"]);
        assert!(matches!(
            Program::new(Path::new("env")).run(&stop()),
            Err(ExecError::Start { .. })
        ));
    }

    #[test]
    fn whoever_takes_too_long_or_is_taken_back_is_killed_with_its_children() {
        let sleeper = || Program::new(Path::new("/bin/sleep")).value("60").unwrap();
        let begun = Instant::now();
        let e = sleeper()
            .within(Duration::from_millis(100))
            .run(&stop())
            .unwrap_err();
        assert!(matches!(e, ExecError::Late { .. }), "{e}");
        let stop = stop();
        stop.cancel();
        let e = sleeper().run(&stop).unwrap_err();
        assert_eq!(Failure::from(e).code, Code::TaskCancelled);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_fails_or_is_missing_says_so_by_code() {
        let e = Program::new(Path::new("/bin/false")).run(&stop()).unwrap_err();
        assert_eq!(Failure::from(e).code, Code::TaskFailed);
        let e = Program::new(Path::new("/nowhere/x")).run(&stop()).unwrap_err();
        assert_eq!(Failure::from(e).code, Code::NotSupported);
    }
}
