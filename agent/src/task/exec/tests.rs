use std::time::Instant;

use hpc_schema::code::Code;

use super::*;
use crate::task::failure::Failure;

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

#[test]
fn lines_come_as_they_are_said_also_by_one_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("said");
    std::fs::write(&file, "one\n").unwrap();
    let mut lines = Vec::new();
    // It says one line, and waits for more that does not come.
    let e = Program::new(Path::new("/usr/bin/tail"))
        .flag("--follow")
        .flag("--lines=+1")
        .value(file.to_str().unwrap())
        .unwrap()
        .within(Duration::from_secs(3))
        .run_lines(&stop(), &mut |l| lines.push(l.to_vec()))
        .unwrap_err();
    assert!(matches!(e, ExecError::Late { .. }), "{e}");
    assert_eq!(lines, [b"one".to_vec()]);
    let input = b"a\n\nb\nc".to_vec();
    let mut lines = Vec::new();
    Program::new(sh())
        .input(input)
        .run_lines(&stop(), &mut |l| lines.push(l.to_vec()))
        .unwrap();
    assert_eq!(lines, [b"a", b"b", b"c"]);
}
