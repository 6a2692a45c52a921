//! A program is in its control group, and has no core, before its first instruction. What is started is this very program:
//! it waits for a word on its standard input and becomes the other one. Whoever has started it puts it where it belongs
//! meanwhile; if that one dies, the word never comes, and nothing has run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The hidden command of that process.
pub const START_COMMAND: &str = "task-start";
/// Exit code of one that could not become the program, as shells say it. A program may end with it too:
pub const NOT_STARTED: u8 = 126;
/// with this on the error output it is not the program's own.
pub const NOT_STARTED_WORDS: &str = "task-start: not begun: ";
/// Says that the program reads nothing.
const NO_INPUT: &str = "--no-input";
/// Found whatever has become of its file meanwhile.
const OURSELVES: &str = "/proc/self/exe";
const WORD: [u8; 1] = *b"\n";

static SERVED: AtomicBool = AtomicBool::new(false);

/// Says that this program has the command. Others that have this code do not: their programs begin at once.
pub fn served() {
    SERVED.store(true, Ordering::Relaxed);
}

/// Whether what was started waits for the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gate {
    waits: bool,
}

impl Gate {
    /// Lets it begin.
    pub(super) fn open(self, input: &mut impl Write) -> io::Result<()> {
        if self.waits {
            input.write_all(&WORD)
        } else {
            Ok(())
        }
    }

    /// Why the program was not begun, where what was started has ended without it.
    pub(super) fn not_begun(self, code: i32, stderr: &[u8]) -> Option<io::Error> {
        if !self.waits || code != i32::from(NOT_STARTED) {
            return None;
        }
        let said = String::from_utf8_lossy(stderr);
        let (_, why) = said.split_once(NOT_STARTED_WORDS)?;
        Some(io::Error::other(why.trim().to_owned()))
    }

    /// Where a program's input comes from that reads nothing itself.
    pub(super) fn input(self) -> Stdio {
        if self.waits { Stdio::piped() } else { Stdio::null() }
    }
}

/// Begins the command of a program; its arguments follow. With `reads`, what is written after the word is the program's.
///
/// # Errors
/// There is no such program, or it may not be run.
pub(super) fn command(program: &Path, reads: bool) -> io::Result<(Command, Gate)> {
    let gate = Gate {
        waits: SERVED.load(Ordering::Relaxed),
    };
    if !gate.waits {
        return Ok((Command::new(program), gate));
    }
    // Told apart here from a program that says so of what it needs.
    let meta = std::fs::metadata(program)?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    let mut command = Command::new(OURSELVES);
    command.arg(START_COMMAND);
    if !reads {
        command.arg(NO_INPUT);
    }
    command.arg("--").arg(program);
    Ok((command, gate))
}

/// Waits for the word and becomes the program: returns only if that cannot be.
#[must_use]
pub fn become_program(words: &[OsString], no_input: bool) -> io::Error {
    let mut word = [0u8; 1];
    loop {
        // Not a byte more: what follows is the program's.
        match rustix::io::read(io::stdin().as_fd(), &mut word) {
            Ok(1) if word == WORD => break,
            Ok(_) => return io::Error::other("whoever was to let it begin is gone"),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return e.into(),
        }
    }
    let Some((program, arguments)) = words.split_first() else {
        return io::Error::other("no program");
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if no_input {
        command.stdin(Stdio::null());
    }
    command.exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_begun_is_told_from_a_program_that_ends_with_the_same_code() {
        let said = format!("error: {NOT_STARTED_WORDS}/bin/x: no such file\n");
        let gate = Gate { waits: true };
        let why = gate.not_begun(126, said.as_bytes()).unwrap();
        assert_eq!(why.to_string(), "/bin/x: no such file");
        assert!(gate.not_begun(126, b"permission denied").is_none());
        assert!(gate.not_begun(1, said.as_bytes()).is_none());
        assert!(Gate { waits: false }.not_begun(126, said.as_bytes()).is_none());
    }
}
