//! Diagnostics that the provider may ask for. They are compiled in, bounded, and change nothing.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::files::{Durability, FileError, Replace, create_directory, write};

/// Reports kept; the newest win.
const KEPT: usize = 8;

/// A diagnostic by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnostic {
    /// The node's judgement of itself, with its reasons.
    Health,
    /// What is measured now.
    Figures,
    /// How the gateway is reached.
    Uplink,
    /// What was measured, as long as it is kept.
    History,
    /// Writing and reading in the state directory.
    Storage,
}

impl Diagnostic {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Health,
        Self::Figures,
        Self::Uplink,
        Self::History,
        Self::Storage,
    ];

    /// Its name in `run_diagnostic`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Figures => "figures",
            Self::Uplink => "uplink",
            Self::History => "history",
            Self::Storage => "storage",
        }
    }

    /// By name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Every name, for whoever asked for another.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

/// What is known of this node at a moment.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// UNIX seconds.
    pub at: u64,
    /// The judgement.
    pub health: String,
    /// Its reasons.
    pub findings: Vec<String>,
    /// Figures that are fresh, by name.
    pub figures: Vec<(&'static str, i64)>,
    /// Gateway in use.
    pub endpoint: String,
    /// Round trip in microseconds.
    pub gateway_latency_us: Option<u64>,
    /// The gateway's clock minus ours.
    pub clock_skew_ms: Option<i64>,
    /// Heartbeats since the start.
    pub accepted: u64,
    /// Attempts since the start that came to nothing.
    pub failed: u64,
    /// When heartbeats did not arrive.
    pub outages: Value,
}

impl Facts {
    /// The report of a diagnostic, and one line of it.
    #[must_use]
    pub fn report(&self, of: Diagnostic) -> (Value, String) {
        match of {
            Diagnostic::Health | Diagnostic::History | Diagnostic::Storage => {
                let value = json!({"at": self.at, "health": self.health, "findings": self.findings});
                let why = if self.findings.is_empty() {
                    String::new()
                } else {
                    format!(": {}", self.findings.join("; "))
                };
                (value, format!("{}{why}", self.health))
            }
            Diagnostic::Figures => {
                let pairs = self.figures.iter().map(|(k, v)| ((*k).to_owned(), json!(v)));
                let value = json!({"at": self.at, "figures": Value::Object(pairs.collect())});
                let shown: Vec<String> = self.figures.iter().map(|(k, v)| format!("{k} {v}")).collect();
                (value, shown.join(", "))
            }
            Diagnostic::Uplink => {
                let value = json!({
                    "at": self.at, "endpoint": self.endpoint, "gateway_latency_us": self.gateway_latency_us,
                    "clock_skew_ms": self.clock_skew_ms, "accepted": self.accepted, "failed": self.failed,
                    "outages": self.outages,
                });
                let unknown = |n: Option<String>| n.unwrap_or_else(|| "unknown".to_owned());
                let line = format!(
                    "{}: {} µs, clock {} ms, {} accepted, {} failed",
                    self.endpoint,
                    unknown(self.gateway_latency_us.map(|n| n.to_string())),
                    unknown(self.clock_skew_ms.map(|n| n.to_string())),
                    self.accepted,
                    self.failed
                );
                (value, line)
            }
        }
    }
}

/// Keeps a report in `dir`, and the newest others; gives its path.
///
/// # Errors
/// IO.
pub fn keep(dir: &Path, of: Diagnostic, at: u64, report: &Value) -> Result<PathBuf, FileError> {
    create_directory(dir)?;
    let path = dir.join(format!("{at:010}-{}.json", of.name()));
    let mut bytes = serde_json::to_vec_pretty(report).unwrap_or_default();
    bytes.push(b'\n');
    write(&path, &bytes, 0o640, Replace::Yes, Durability::Atomic)?;
    let all = crate::probe::names_in(dir);
    for old in all.iter().take(all.len().saturating_sub(KEPT)) {
        std::fs::remove_file(dir.join(old)).ok();
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            at: 1000,
            health: "degraded".into(),
            findings: vec!["cpu_hot: the CPU has 99 °C".into()],
            figures: vec![("cpu_percent", 12), ("load_1m_millionths", 500_000)],
            endpoint: "https://gw:8443".into(),
            gateway_latency_us: Some(900),
            clock_skew_ms: None,
            accepted: 7,
            failed: 1,
            outages: json!([]),
        }
    }

    #[test]
    fn each_report_says_in_one_line_what_matters() {
        let f = facts();
        assert_eq!(
            f.report(Diagnostic::Health).1,
            "degraded: cpu_hot: the CPU has 99 °C"
        );
        assert_eq!(
            f.report(Diagnostic::Figures).1,
            "cpu_percent 12, load_1m_millionths 500000"
        );
        assert_eq!(
            f.report(Diagnostic::Uplink).1,
            "https://gw:8443: 900 µs, clock unknown ms, 7 accepted, 1 failed"
        );
        for d in Diagnostic::ALL {
            assert_eq!(Diagnostic::from_name(d.name()), Some(d));
            assert!(f.report(d).0["at"] == 1000);
        }
        assert_eq!(Diagnostic::from_name("rm"), None);
    }

    #[test]
    fn the_newest_reports_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("diagnostics");
        for at in 1..=20 {
            keep(&dir, Diagnostic::Health, at, &json!({"at": at})).unwrap();
        }
        let names = crate::probe::names_in(&dir);
        assert_eq!(names.len(), KEPT);
        assert_eq!(names.last().unwrap(), "0000000020-health.json");
        assert_eq!(names.first().unwrap(), "0000000013-health.json");
    }
}
