use std::io::Write as _;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;

use super::Failure;

/// Prints a line of an answer. A reader that has gone away (`… | head`) is no error; a full disk is said.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::line(format_args!($($text)*)) };
}
pub(super) use say;

pub(super) fn line(text: std::fmt::Arguments<'_>) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => eprintln!("error: standard output: {e}"),
        _ => {}
    }
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
