use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;

use super::Failure;

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
    println!("{}", text.trim_end());
    Ok(ExitCode::SUCCESS)
}
