//! The end of what hangs. A test may wait for a lock, a thread or a program for ever: then it is named, and ended with the
//! programs that it has started, long before whoever runs the tests gives up. The suites of other crates include this file.

use std::fs;
use std::io::{self, Read, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that a test takes anywhere, and one that counts its runs as `scripts/test --full` has it.
const LONGEST: Duration = Duration::from_secs(1800);
const LONGEST_OF_MANY: Duration = Duration::from_secs(3 * 3600);
/// From so many `HPC_TEST_RUNS` on it is the latter.
const MANY: u64 = 20;
/// How long a pipe may be held by what an ended program has left behind.
const LEFT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Ends the whole suite if it is not dropped in time.
#[derive(Debug)]
pub struct Deadline {
    _ends: Sender<()>,
}

impl Deadline {
    /// Of the test on whose thread this is, of any length that a test has.
    #[must_use]
    pub fn of_test() -> Self {
        let runs = std::env::var("HPC_TEST_RUNS").ok().and_then(|n| n.parse().ok());
        Self::within(if runs.unwrap_or(0) >= MANY {
            LONGEST_OF_MANY
        } else {
            LONGEST
        })
    }

    /// Of the test on whose thread this is.
    #[must_use]
    #[allow(clippy::exit, reason = "whatever hangs does not return")]
    pub fn within(limit: Duration) -> Self {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let (ends, ended) = channel();
        thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let text = format!(
                    "\nerror: {name} did not end within {} s and is ended, with all tests beside it. Remedy: run it alone and look \
                     what it waits for\n",
                    limit.as_secs()
                );
                // Not by a macro: the harness would keep it until the test has ended.
                io::stderr().write_all(text.as_bytes()).ok();
                end_children("self");
                std::process::exit(124);
            }
        });
        Self { _ends: ends }
    }
}

/// Kills what a process has started, those that were started last first.
fn end_children(process: &str) {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            end_children(child);
            Command::new("kill").args(["-KILL", child]).status().ok();
        }
    }
}

/// Runs a program, with nothing to read, to its end, and kills it if that does not come in time.
///
/// # Errors
/// As the system says; [`io::ErrorKind::TimedOut`] with the command.
pub fn output(command: &mut Command, within: Duration) -> io::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    output_of(child, within).map_err(|e| io::Error::new(e.kind(), format!("{command:?}: {e}")))
}

/// The same of one that runs, with both its outputs in pipes.
///
/// # Errors
/// See [`output`].
pub fn output_of(mut child: Child, within: Duration) -> io::Result<Output> {
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let until = Instant::now() + within;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            let said = |pipe: &Receiver<Vec<u8>>| {
                let bytes = pipe.recv_timeout(LEFT).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let text = format!(
                "did not end within {} s\n{}{}",
                within.as_secs(),
                said(&stdout),
                said(&stderr)
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(PAUSE);
    };
    let whole = |pipe: &Receiver<Vec<u8>>| {
        pipe.recv_timeout(LEFT).map_err(|_| {
            let text = "it has ended, and what it has started holds its output";
            io::Error::new(io::ErrorKind::TimedOut, text)
        })
    };
    Ok(Output {
        status,
        stdout: whole(&stdout)?,
        stderr: whole(&stderr)?,
    })
}

/// All that comes out of a pipe, once it has ended.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (give, take) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).ok();
        }
        give.send(bytes).ok();
    });
    take
}
