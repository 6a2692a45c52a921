//! Runs a program of the system: absolute path, argument vector, scrubbed environment, time limit, bounded output, its
//! own process group, no core. The one place in the task domain where another program is started and waited for.

mod error;
mod listen;

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, prlimit};

pub use error::ExecError;
use listen::{Why, kill, listen, pid_of};

use super::jail::Jail;
use super::limited::{Limited, PROGRAM};
use super::start;
use super::stop::Stop;
use crate::files::Owner;
use crate::machine::cgroup::Limits;

/// Output that is kept of each stream unless told otherwise.
const OUTPUT: usize = 64 << 10;
/// Bytes of a line that are handed over.
const LINE: usize = 64 << 10;
/// How long a program may run unless told otherwise.
const LIMIT: Duration = Duration::from_secs(60);

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
    user: Option<Owner>,
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
            user: None,
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
    pub(crate) fn vector(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
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

    /// Runs as another user; only root can.
    #[must_use]
    pub fn as_user(mut self, user: Option<Owner>) -> Self {
        self.user = user;
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
        self.run_into(stop, &mut |_| {})
    }

    /// The same, and each line of its output, up to a bound, as it comes. Lines may have come when it fails in the end.
    ///
    /// # Errors
    /// [`ExecError`].
    pub fn run_lines(self, stop: &Stop, each: &mut dyn FnMut(&[u8])) -> Result<Output, ExecError> {
        let mut line = Vec::new();
        let output = self.run_into(stop, &mut |said| {
            for part in said.split_inclusive(|b| *b == b'\n') {
                let room = LINE.saturating_sub(line.len());
                line.extend(part.iter().filter(|b| **b != b'\n').take(room));
                if part.ends_with(b"\n") && !line.is_empty() {
                    each(&line);
                    line.clear();
                }
            }
        })?;
        if !line.is_empty() {
            each(&line);
        }
        Ok(output)
    }

    fn run_into(self, stop: &Stop, sink: &mut dyn FnMut(&[u8])) -> Result<Output, ExecError> {
        let path = self.path.clone();
        let output = self.ask_into(stop, sink)?;
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
        self.ask_into(stop, &mut |_| {})
    }

    fn ask_into(self, stop: &Stop, sink: &mut dyn FnMut(&[u8])) -> Result<Output, ExecError> {
        let Self {
            path,
            arguments,
            environment,
            input,
            limit,
            output: keep,
            jail,
            limits,
            user,
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
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
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
        let ended = listen(&mut child, stop, (limit, keep), sink);
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

#[cfg(test)]
mod tests;
