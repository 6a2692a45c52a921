//! Runs the real binary.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::deadline::{self, Deadline};
use crate::support::rpc::Rpc;

/// A running chain; killed when dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) rpc: Rpc,
    _deadline: Deadline,
}

pub(crate) fn command(arguments: &[&str], home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_virtengine-devnet"));
    command
        .args(arguments)
        .arg("--home")
        .arg(home)
        .env("VIRTENGINE_LOG", "warn");
    command
}

pub(crate) fn output(arguments: &[&str], home: &Path) -> Output {
    deadline::output(&mut command(arguments, home), Duration::from_secs(120)).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Process {
    /// Starts the chain on a free port and waits until it says where it listens.
    pub(crate) fn start(home: &Path, arguments: &[&str]) -> Self {
        let deadline = Deadline::of_test();
        let mut child = command(&["start", "--rpc-addr", "127.0.0.1:0"], home)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("RPC at ")
            .unwrap_or_else(|| panic!("no address in `{line}`"));
        Self {
            rpc: Rpc::new(url),
            child,
            _deadline: deadline,
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by name and waits for the end.
    pub(crate) fn signal(mut self, name: &str) -> ExitStatus {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "still running 60 s after SIG{name}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
