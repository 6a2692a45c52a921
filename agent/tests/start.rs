//! Programs of tasks begin when they are told to, and not before: the process that waits in their place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const AGENT: &str = env!("CARGO_BIN_EXE_virtengine-node-agent");

fn waiting(words: &[&str]) -> Child {
    Command::new(AGENT)
        .arg("task-start")
        .args(words)
        .env_clear()
        .env("MARK", "kept")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn exe(child: &Child) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap()
}

/// How it ended, in time.
fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("a program that was let begin, or told that it never will, does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What it has said at its end: less than a pipe holds.
fn said(child: &mut Child) -> String {
    ended(child);
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_program_begins_with_the_word_under_the_number_that_its_group_has() {
    let mut child = waiting(&["--", "/bin/cat"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(exe(&child), Path::new(AGENT).canonicalize().unwrap());
    let mut input = child.stdin.take().unwrap();
    // What follows the word is the program's, to the byte.
    input.write_all(b"\nfirst\nsecond").unwrap();
    drop(input);
    assert_eq!(said(&mut child), "first\nsecond");
    assert!(ended(&mut child).success());
    // Arguments and environment come through as they are.
    let mut child = waiting(&[
        "--",
        "/usr/bin/env",
        "printf",
        "%s|",
        "--no-input",
        "--",
        "-x",
        "$MARK",
    ]);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(said(&mut child), "--no-input|--|-x|$MARK|");
    let mut child = waiting(&["--", "/usr/bin/env"]);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(said(&mut child), "MARK=kept\n");
    // One that reads nothing has nothing to read.
    let mut child = waiting(&["--no-input", "--", "/bin/cat"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\nfirst").unwrap();
    assert_eq!(said(&mut child), "");
    assert!(ended(&mut child).success());
}

#[test]
fn without_the_word_nothing_begins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made");
    for word in [&b""[..], b"x", b"\0\n"] {
        let mut child = waiting(&["--", "/bin/touch", file.to_str().unwrap()]);
        let mut input = child.stdin.take().unwrap();
        input.write_all(word).unwrap();
        drop(input);
        assert_eq!(ended(&mut child).code(), Some(126));
        assert!(!file.exists(), "{word:?}");
    }
    let mut child = waiting(&["--", "/nowhere/program"]);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(ended(&mut child).code(), Some(126));
    let mut why = String::new();
    child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(why.contains("/nowhere/program cannot be started"), "{why}");
}
