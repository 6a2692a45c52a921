//! Stand-ins for programs of the system, in tests.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program with this text. Another process writes it: a child that a test beside forks meanwhile would have the file open
/// for writing for a moment, and then nobody can run it.
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) fn stand_in(path: &Path, text: &str) {
    let mut copy = Command::new("install")
        .args(["--mode=755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    copy.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(copy.wait().unwrap().success(), "{} is not made", path.display());
}
