use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::deadline::{Deadline, output};

const SOON: Duration = Duration::from_secs(60);
/// Within that a shell says its first word.
const BEGINS: Duration = Duration::from_secs(5);
const HANGS: &str = "HPC_TEST_HANGS";
const NAME: &str = "deadline_tests::a_test_that_hangs_is_named_and_ended_with_its_programs";

fn sh(script: &str) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", script]);
    sh
}

#[test]
fn a_program_that_ends_is_read_whole_and_one_that_hangs_is_ended() {
    let said = output(&mut sh("seq 1 100000; echo x >&2; exit 3"), SOON).unwrap();
    assert_eq!((said.status.code(), said.stdout.len()), (Some(3), 588_895));
    assert_eq!(said.stderr, b"x\n");
    let e = output(&mut sh("echo begun; exec sleep 600"), BEGINS).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::TimedOut);
    let text = e.to_string();
    assert!(text.contains("sleep 600") && text.contains("begun"), "{text}");
}

#[test]
fn a_test_that_hangs_is_named_and_ended_with_its_programs() {
    if std::env::var_os(HANGS).is_some() {
        let mut hangs = sh("sleep 600 & echo program $!; wait");
        let mut hangs = hangs.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(hangs.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        println!("\n{line}");
        let _deadline = Deadline::within(Duration::from_secs(1));
        hangs.wait().unwrap();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args([NAME, "--exact", "--nocapture", "--test-threads=2"])
        .env(HANGS, "1");
    let said = output(&mut again, SOON).unwrap();
    assert_eq!(said.status.code(), Some(124));
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(
        text.contains(NAME) && text.contains("did not end within 1 s"),
        "{text}"
    );
    let out = String::from_utf8(said.stdout).unwrap();
    let mut programs = out
        .split("program ")
        .skip(1)
        .map(|p| p.split_whitespace().next().unwrap());
    let program = programs.next().expect("it has started a program");
    let until = Instant::now() + SOON;
    loop {
        let state = fs::read_to_string(format!("/proc/{program}/stat")).unwrap_or_default();
        if state.is_empty() || state.contains(") Z ") {
            break;
        }
        assert!(Instant::now() < until, "{state}");
        sleep(Duration::from_millis(10));
    }
}
