//! Section `health` of the file: the site's own checks.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::HumanDuration;
use super::{ConfigError, check};
use crate::probe::checks::ChecksConfig;

/// The site's own checks.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Executables in it are checks: exit code 0 passed, 1 degraded, more failed; default `/etc/virtengine/node-agent/checks.d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks_dir: Option<PathBuf>,
    /// Between two runs: 30s–1d, default 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks_interval: Option<HumanDuration>,
    /// Time of each check: 1s–1m, default 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_timeout: Option<HumanDuration>,
    /// Root's file of findings to rehearse, `code message` a line; default `/run/virtengine-node-agent.rehearsal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<PathBuf>,
}

pub(super) fn resolve(section: Health) -> Result<ChecksConfig, ConfigError> {
    let seconds = Duration::from_secs;
    let ChecksConfig {
        dir,
        interval,
        timeout,
        rehearsal,
    } = ChecksConfig::default();
    let path = |key, given: Option<PathBuf>, default: PathBuf| {
        let path = given.unwrap_or(default);
        if path.is_absolute() {
            Ok(path)
        } else {
            let message = format!("must be an absolute path, is {}", path.display());
            Err(ConfigError::Value { key, message })
        }
    };
    let between =
        |key, given, default, least, most| check::within(key, given, default, seconds(least), seconds(most));
    Ok(ChecksConfig {
        dir: path("health.checks_dir", section.checks_dir, dir)?,
        interval: between(
            "health.checks_interval",
            section.checks_interval,
            interval,
            30,
            86_400,
        )?,
        timeout: between("health.check_timeout", section.check_timeout, timeout, 1, 60)?,
        rehearsal: path("health.rehearsal", section.rehearsal, rehearsal)?,
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, resolve};

    #[test]
    fn checks_have_bounds_and_absolute_places() {
        let read = |text: &str| {
            let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
            let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
            resolve(file).map(|c| c.checks).map_err(|e| e.to_string())
        };
        assert_eq!(read(""), Ok(crate::probe::checks::ChecksConfig::default()));
        let c = read("health: {checks_dir: /x, checks_interval: 1m, check_timeout: 3s}").unwrap();
        assert_eq!(
            (c.dir.as_path(), c.interval.as_secs(), c.timeout.as_secs()),
            ("/x".as_ref(), 60, 3)
        );
        for (bad, key) in [
            ("health: {checks_dir: x}", "health.checks_dir"),
            ("health: {checks_interval: 1s}", "health.checks_interval"),
            ("health: {check_timeout: 2m}", "health.check_timeout"),
            ("health: {rehearsal: x}", "health.rehearsal"),
        ] {
            assert!(read(bad).unwrap_err().contains(key), "{bad}");
        }
    }
}
