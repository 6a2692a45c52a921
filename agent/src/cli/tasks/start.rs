use std::ffi::OsString;
use std::path::Path;

use super::super::Failure;
use crate::task::start::become_program;

/// Becomes a program of a task; why not.
pub(in crate::cli) fn start(words: &[OsString], no_input: bool) -> Failure {
    let program = words.first().cloned().unwrap_or_default();
    let why = become_program(words, no_input);
    // As shells say it.
    Failure::new(
        126,
        format_args!("{} cannot be started: {why}", Path::new(&program).display()),
    )
}
