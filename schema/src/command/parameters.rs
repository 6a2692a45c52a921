use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::CommandType;
use crate::code::Code;
use crate::refusal::Refusal;

/// Longest `parameters` in bytes.
pub const MAX_PARAMETERS_BYTES: usize = 4096;

/// The parameters of a command, checked. Unknown members are refused: an order is not half understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameters {
    /// Of `drain`.
    Drain(Reason),
    /// Of `resume`.
    Resume(Reason),
    /// Of `shutdown`.
    Shutdown(Reason),
    /// Of `update_agent`.
    UpdateAgent(UpdateAgent),
    /// Of `run_diagnostic`.
    RunDiagnostic(RunDiagnostic),
}

/// Why an order was given.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// For people, at most 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Which version to install.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateAgent {
    /// Version (semver) that the program says of itself.
    pub version: String,
    /// Where it is: `https://…`.
    pub url: String,
    /// Lower-case hex SHA-256 of the file.
    pub sha256: String,
}

/// Which diagnostic to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDiagnostic {
    /// Name of a diagnostic that is compiled into the agent: 1 to 64 of `[a-z0-9_-]`.
    pub name: String,
}

impl Parameters {
    /// Reads the parameters of a command of this type.
    ///
    /// # Errors
    /// [`Code::InvalidField`] naming what is wrong.
    pub fn parse(kind: CommandType, raw: &RawValue) -> Result<Self, Refusal> {
        let bad =
            |what: &dyn std::fmt::Display| Refusal::field(Code::InvalidField, "commands.parameters", what);
        let text = raw.get();
        if text.len() > MAX_PARAMETERS_BYTES {
            return Err(bad(&format_args!("has more than {MAX_PARAMETERS_BYTES} bytes")));
        }
        // serde would read an empty list as a struct without required members.
        if !text.starts_with('{') {
            return Err(bad(&"must be an object"));
        }
        let json = |e: serde_json::Error| bad(&e);
        let reason = || -> Result<Reason, Refusal> {
            let r: Reason = serde_json::from_str(text).map_err(json)?;
            if r.reason.as_ref().is_some_and(|r| r.len() > 256) {
                return Err(bad(&"reason has more than 256 bytes"));
            }
            Ok(r)
        };
        match kind {
            CommandType::Drain => Ok(Self::Drain(reason()?)),
            CommandType::Resume => Ok(Self::Resume(reason()?)),
            CommandType::Shutdown => Ok(Self::Shutdown(reason()?)),
            CommandType::UpdateAgent => {
                let update: UpdateAgent = serde_json::from_str(text).map_err(json)?;
                if update.version.is_empty() || update.version.len() > 32 {
                    return Err(bad(&"version must have 1 to 32 characters"));
                }
                if !update.url.starts_with("https://") {
                    return Err(bad(&"url must begin with https://"));
                }
                let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if update.sha256.len() != 64 || !update.sha256.bytes().all(hex) {
                    return Err(bad(
                        &"sha256 must be the lower-case hex of a SHA-256 (64 characters)",
                    ));
                }
                Ok(Self::UpdateAgent(update))
            }
            CommandType::RunDiagnostic => {
                let run: RunDiagnostic = serde_json::from_str(text).map_err(json)?;
                let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
                if run.name.is_empty() || run.name.len() > 64 || !run.name.bytes().all(good) {
                    return Err(bad(&"name must be 1 to 64 of [a-z0-9_-]"));
                }
                Ok(Self::RunDiagnostic(run))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: CommandType, text: &str) -> Result<Parameters, Refusal> {
        Parameters::parse(kind, &RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn sound_parameters_are_read_and_others_named() {
        assert!(parse(CommandType::Drain, "{}").is_ok());
        assert!(parse(CommandType::Shutdown, r#"{"reason":"fans"}"#).is_ok());
        assert!(parse(CommandType::RunDiagnostic, r#"{"name":"gpu_memory"}"#).is_ok());
        let sha = "a".repeat(64);
        let update = |url: &str| format!(r#"{{"version":"0.2.0","url":"{url}","sha256":"{sha}"}}"#);
        assert!(parse(CommandType::UpdateAgent, &update("https://example.com/agent")).is_ok());
        for (kind, bad) in [
            (CommandType::Drain, r#"{"now":true}"#.to_owned()),
            (CommandType::Resume, "[]".to_owned()),
            (CommandType::UpdateAgent, update("http://example.com/agent")),
            (CommandType::UpdateAgent, "{}".to_owned()),
            (CommandType::RunDiagnostic, r#"{"name":"rm -rf"}"#.to_owned()),
            (
                CommandType::Drain,
                format!(r#"{{"reason":"{}"}}"#, "a".repeat(300)),
            ),
        ] {
            let refusal = parse(kind, &bad).unwrap_err();
            assert_eq!(refusal.code, Code::InvalidField, "{bad}");
        }
    }
}
