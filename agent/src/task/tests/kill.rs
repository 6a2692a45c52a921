//! SIGKILL at every record of a task's journal, before and after it is on the disk: what the journal alone tells is
//! enough to end the task once, and to leave nothing on the host that is nobody's.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::TaskOutcome;

use super::bench::*;

const DIR: &str = "HPC_TASK_CHILD_DIR";
const WHAT: &str = "HPC_TASK_CHILD_WHAT";
/// More than a task of these has.
#[cfg(feature = "fault-injection")]
const PLACES: u32 = 500;

/// What a killed process did: not a test by itself, but the body of the process that the tests below start.
#[test]
fn child_that_is_killed() {
    let (Ok(dir), Ok(what)) = (std::env::var(DIR), std::env::var(WHAT)) else {
        return;
    };
    let node = Node::start(Path::new(&dir));
    let task = match what.as_str() {
        "launch" => launch(&node.site, "task-launch", "vm-1"),
        "fails" => launch(&node.site, "task-launch", "fails-1"),
        _ => terminate(&node.site, "task-end", "vm-1"),
    };
    // Written where the next process finds the very task: its bytes count.
    std::fs::write(
        Path::new(&dir).join("task.json"),
        serde_json::to_vec(&task).unwrap(),
    )
    .unwrap();
    node.run(&task);
}

/// Whether the process was killed at the n-th place.
fn killed(dir: &Path, what: &str, n: u32) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "task::tests::kill::child_that_is_killed",
            "--test-threads=1",
        ])
        .env(DIR, dir)
        .env(WHAT, what)
        .env("VIRTENGINE_AGENT_FAULT", format!("task.journal:{n}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENCE * 2;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() >= end {
            child.kill().unwrap();
            panic!("{what} {n}: the process neither ended nor was killed");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.signal().is_none() {
        assert!(status.success(), "{what} {n}: {status}");
    }
    status.signal().is_some()
}

/// At every place in a long run, at every seventh in a short one.
fn step() -> u32 {
    let runs = std::env::var("HPC_TEST_RUNS").ok();
    let long = runs.and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n >= 100);
    if long { 1 } else { 7 }
}

fn delivered(dir: &Path) -> hpc_schema::task::Task {
    serde_json::from_slice(&std::fs::read(dir.join("task.json")).unwrap()).unwrap()
}

#[test]
#[cfg(feature = "fault-injection")]
fn a_launch_that_is_killed_anywhere_is_undone_or_done_and_never_begun_twice() {
    for what in ["launch", "fails"] {
        let mut n = 1;
        loop {
            n += step();
            assert!(n < PLACES, "{what}: there is no end of places");
            let dir = tempfile::tempdir().unwrap();
            let was_killed = killed(dir.path(), what, n);
            let task = delivered(dir.path());
            let node = Node::start(dir.path());
            // Delivered again, as the gateway does whose word was lost.
            let result = node.run(&task);
            let (outcome, code) = (result.outcome, code(&result));
            let left = left(&node.host);
            match outcome {
                TaskOutcome::Completed => assert_eq!(left, ["vm-1", "vm-1.lease"], "{what} {n}"),
                _ => {
                    let wanted = [Some(Code::TaskInterrupted), Some(Code::TaskFailed)];
                    assert!(wanted.contains(&code), "{what} {n}: {code:?}");
                    assert!(left.is_empty(), "{what} {n}: {left:?}");
                }
            }
            let ended = terminate(&node.site, "task-end", "vm-1");
            assert_eq!(super::bench::code(&node.run(&ended)), None, "{what} {n}");
            assert!(super::bench::left(&node.host).is_empty(), "{what} {n}");
            // And the same again, for good.
            assert_eq!(node.run(&task).signature, result.signature, "{what} {n}");
            if !was_killed {
                assert!(n > 20, "{what}: only {n} places");
                break;
            }
        }
    }
}

#[test]
#[cfg(feature = "fault-injection")]
fn a_release_that_is_killed_anywhere_is_finished() {
    let mut n = 1;
    loop {
        n += step();
        assert!(n < PLACES, "there is no end of places");
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path());
        assert_eq!(code(&node.run(&launch(&node.site, "task-launch", "vm-1"))), None);
        node.domain.stop();
        let was_killed = killed(dir.path(), "end", n);
        let task = delivered(dir.path());
        let node = Node::start(dir.path());
        let result = node.run(&task);
        assert_eq!(code(&result), None, "{n}");
        assert!(left(&node.host).is_empty(), "{n}: {:?}", left(&node.host));
        if !was_killed {
            assert!(n > 8, "only {n} places");
            break;
        }
    }
}
