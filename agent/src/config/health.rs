//! Section `health` of the file: the site's own checks.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::HumanDuration;
use super::{ConfigError, bounds};
use crate::health::{Drains, Policy, kind};
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
    /// Which findings take the node out of service: `faults` (those that docs/agent-health.md marks; the default), `listed`
    /// (those of `drain_on`), or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    /// Codes of findings, with `drain: listed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drain_on: Vec<String>,
    /// How long nothing must speak against the node before it returns to service: 10s–7d, default 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_after: Option<HumanDuration>,
    /// Root's file of findings to rehearse, `code message` a line; default `/run/virtengine-node-agent.rehearsal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<PathBuf>,
}

/// The policy of health.
pub(super) fn policy(section: &Health) -> Result<Policy, ConfigError> {
    let refuse = |key, message: String| Err(ConfigError::Value { key, message });
    let listed = &section.drain_on;
    if let Some(unknown) = listed.iter().find(|c| kind(c).is_none()) {
        let message = format!("{unknown:?} is no finding; docs/agent-health.md has them all");
        return refuse("health.drain_on", message);
    }
    let drains = match section.drain.as_deref() {
        Some("listed") if listed.is_empty() => {
            return refuse(
                "health.drain_on",
                "must name findings, with drain: listed".to_owned(),
            );
        }
        Some("listed") => Drains::These(listed.clone()),
        _ if !listed.is_empty() => {
            return refuse("health.drain", "must be listed, with drain_on".to_owned());
        }
        None | Some("faults") => Drains::Faults,
        Some("never") => Drains::Never,
        Some(other) => {
            return refuse(
                "health.drain",
                format!("must be faults, listed or never, is {other:?}"),
            );
        }
    };
    let seconds = Duration::from_secs;
    Ok(Policy {
        drains,
        return_after: bounds::within(
            "health.return_after",
            section.return_after,
            Policy::default().return_after,
            seconds(10),
            seconds(7 * 86_400),
        )?,
    })
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
        |key, given, default, least, most| bounds::within(key, given, default, seconds(least), seconds(most));
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

    #[test]
    fn the_policy_of_health_names_findings_that_there_are() {
        let read = |text: &str| {
            let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
            let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
            resolve(file).map(|c| c.policy).map_err(|e| e.to_string())
        };
        assert_eq!(read(""), Ok(crate::health::Policy::default()));
        let p = read("health: {drain: listed, drain_on: [cpu_hot], return_after: 30m}").unwrap();
        assert_eq!(p.drains, crate::health::Drains::These(vec!["cpu_hot".into()]));
        assert_eq!(p.return_after.as_secs(), 1800);
        assert_eq!(
            read("health: {drain: never}").unwrap().drains,
            crate::health::Drains::Never
        );
        for (bad, key) in [
            ("health: {drain: sometimes}", "health.drain:"),
            ("health: {drain: listed}", "health.drain_on:"),
            ("health: {drain_on: [cpu_hot]}", "health.drain:"),
            (
                "health: {drain: listed, drain_on: [cpu_warm]}",
                "health.drain_on:",
            ),
            ("health: {return_after: 1s}", "health.return_after"),
        ] {
            let e = read(bad).unwrap_err();
            assert!(e.contains(key), "{bad}: {e}");
        }
    }
}
