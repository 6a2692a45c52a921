//! Asking a person before something is done.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::error::{Exit, Failure};

/// Returns if the answer is yes. Without a terminal there is nobody to ask: that is refused, not assumed.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "confirmation_needed",
            "there is no terminal to ask for confirmation",
        )
        .remedy("give --yes"));
    }
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ").and_then(|()| err.flush()).ok();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failed,
        "not_confirmed",
        "not confirmed; nothing was done",
    ))
}
