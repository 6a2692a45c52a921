//! A program under test as a real process, which never outlives its test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{deadline, wait};

/// Longer than what builds a chain from nothing takes.
const LIMIT: Duration = Duration::from_secs(45 * 60);
/// How much of a log is printed when a test fails.
const TAIL_LINES: usize = 60;

/// A running program. Dropping it kills it (SIGKILL); its log stays in the test's folder.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with stdout and stderr appended to `log`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .context("cannot open a log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_path_buf(),
        })
    }

    /// SIGKILL, as a power cut would do it; returns once the process is gone.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.child
            .kill()
            .with_context(|| format!("cannot kill {}", self.name))?;
        self.child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// SIGTERM, then waits for the process to end by itself.
    ///
    /// # Errors
    /// If it still runs after `deadline`.
    pub fn stop(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let sent = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status()?;
        if !sent.success() {
            bail!("cannot signal {}", self.name);
        }
        let until = Instant::now() + deadline;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("{} still runs {deadline:?} after SIGTERM", self.name);
            }
            std::thread::sleep(wait::PAUSE);
        }
    }

    /// Fails if the process has ended, with the end of its log.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, self.tail()),
        }
    }

    /// Everything that the process has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(TAIL_LINES)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// If it cannot be started, ends with another code than 0, or does not end; the error carries its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = deadline::output(command, LIMIT).with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} ended with {}:\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
            String::from_utf8_lossy(&output.stdout).trim()
        );
    }
    String::from_utf8(output.stdout).context("output is not UTF-8")
}
