use std::ffi::OsString;
use std::path::Path;

use super::super::Failure;
use crate::task::start::{NOT_STARTED, NOT_STARTED_WORDS, become_program};

/// Becomes a program of a task; why not.
pub(in crate::cli) fn start(words: &[OsString], no_input: bool) -> Failure {
    let program = words.first().cloned().unwrap_or_default();
    let why = become_program(words, no_input);
    Failure::new(
        NOT_STARTED,
        format_args!(
            "{NOT_STARTED_WORDS}{} cannot be started: {why}",
            Path::new(&program).display()
        ),
    )
}
