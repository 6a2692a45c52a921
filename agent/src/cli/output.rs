use std::fmt::Display;
use std::io::{Error, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::ValueEnum;
use serde_json::Value;

use super::Failure;

/// Why standard output takes no more: nothing is written to it any more then.
static LOST: OnceLock<Error> = OnceLock::new();

/// Prints a line of an answer. What cannot be written is told once, by [`ended`].
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::line(format_args!($($text)*)) };
}
pub(super) use say;

pub(super) fn line(text: std::fmt::Arguments<'_>) {
    raw(format!("{text}\n").as_bytes());
}

/// Prints text as it is.
pub(super) fn raw(text: &[u8]) {
    if is_lost() {
        return;
    }
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_all(text).and_then(|()| out.flush()) {
        LOST.set(e).ok();
    }
}

/// Whether nobody gets any more of the answer.
pub(super) fn is_lost() -> bool {
    LOST.get().is_some()
}

/// How a command ends that has come to its end with `code`.
///
/// # Errors
/// Its answer could not be written. A reader that has gone away (`… | head`) has what it wanted.
pub(super) fn ended(code: ExitCode) -> Result<ExitCode, Failure> {
    match LOST.get() {
        Some(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            1,
            format_args!("standard output: {e}; the answer is not complete: write it elsewhere"),
        )),
        _ => Ok(code),
    }
}

/// A number of things: `1 warning`, `2 warnings`.
pub(super) fn counted<N: Copy + Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{s}")
}

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
    /// YAML
    Yaml,
}

/// Prints a value as JSON or YAML (`Text` prints YAML, which people read too).
pub(super) fn print(value: &Value, format: Format) -> Result<ExitCode, Failure> {
    let text = match format {
        Format::Json => serde_json::to_string_pretty(value).map_err(|e| Failure::new(1, e))?,
        Format::Text | Format::Yaml => serde_yaml_ng::to_string(value).map_err(|e| Failure::new(1, e))?,
    };
    say!("{}", text.trim_end());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_counted_as_one() {
        let shown = [0u32, 1, 2].map(|n| counted(n, "warning"));
        assert_eq!(shown, ["0 warnings", "1 warning", "2 warnings"]);
        assert_eq!(counted(1usize, "sample"), "1 sample");
    }
}
