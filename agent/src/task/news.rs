//! What the heartbeat takes over from the task domain: two files that this writes for others to read.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hpc_schema::task::{CheckStatus, HealthProbed};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::host::TaskDir;
use super::safety::Report;
use crate::files::{Durability, read_text};
use crate::state::write_json;

/// What was seen longer ago than this is no news any more.
const FRESH: u64 = 24 * 3600;
/// More than either file has.
const LIMIT: u64 = 4 << 20;
/// What stands in one finding at most.
const NAMED: usize = 3;

/// How the last health probe ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// UNIX seconds.
    pub at: u64,
    /// The worst of its checks.
    pub status: CheckStatus,
    /// What failed.
    pub failed: Vec<String>,
}

impl Probed {
    /// Of a probe that looked at everything.
    #[must_use]
    pub fn of(probed: &HealthProbed, at: u64) -> Self {
        let failed = probed.checks.iter().filter(|c| c.status == CheckStatus::Fail);
        Self {
            at,
            status: probed.status,
            failed: failed
                .map(|c| format!("{:?}: {}", c.check, c.detail).to_lowercase())
                .collect(),
        }
    }

    pub(super) fn save(&self, dir: &TaskDir) {
        if let Err(e) = write_json(&dir.probe(), self, 0o644, Durability::Atomic) {
            tracing::warn!("{e}");
        }
    }
}

/// One file, read anew when it has changed.
#[derive(Debug, Clone)]
struct Seen<T> {
    path: PathBuf,
    changed: Option<SystemTime>,
    value: Option<T>,
}

impl<T: DeserializeOwned> Seen<T> {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            changed: None,
            value: None,
        }
    }

    /// Whether it is another one now.
    fn look(&mut self) -> bool {
        let changed = std::fs::metadata(&self.path).and_then(|m| m.modified()).ok();
        if changed == self.changed {
            return false;
        }
        self.changed = changed;
        // Without it, or where we may not read it, there is no news.
        let text = read_text(&self.path, LIMIT).ok();
        self.value = text.and_then(|t| serde_json::from_str(&t).ok());
        true
    }
}

/// What there is to know.
#[derive(Debug, Default, Clone)]
pub struct News {
    files: Option<(Seen<Report>, Seen<Probed>)>,
    found: Vec<(&'static str, String)>,
    until: u64,
}

impl News {
    /// Of the task domain in this folder; none where the node takes no tasks.
    #[must_use]
    pub fn of(dir: Option<&Path>) -> Self {
        let files = dir.map(|dir| {
            let dir = TaskDir::new(dir);
            (Seen::new(dir.safety()), Seen::new(dir.probe()))
        });
        Self {
            files,
            ..Self::default()
        }
    }

    /// What was read last: code of the catalogue, and words.
    #[must_use]
    pub fn last(&self) -> &[(&'static str, String)] {
        &self.found
    }

    /// Looks again; reads a file only if it has changed.
    pub fn read(&mut self, unix: u64) -> &[(&'static str, String)] {
        let Some((safety, probe)) = &mut self.files else {
            return &[];
        };
        let (safety_changed, probe_changed) = (safety.look(), probe.look());
        if safety_changed || probe_changed || unix >= self.until {
            self.until = unix.saturating_add(60);
            self.found = found(safety.value.as_ref(), probe.value.as_ref(), unix);
        }
        &self.found
    }
}

fn found(safety: Option<&Report>, probe: Option<&Probed>, unix: u64) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(report) = safety.filter(|r| r.at.saturating_add(FRESH) > unix) {
        if !report.damaged.is_empty() {
            all.push(("task_journal_damaged", few(&report.damaged)));
        }
        let orphans = report.orphans.iter().map(|o| o.found.to_string());
        let unclear = report.unclear.iter().map(ToString::to_string);
        let left: Vec<String> = report
            .left
            .iter()
            .cloned()
            .chain(orphans)
            .chain(unclear)
            .collect();
        if !left.is_empty() {
            all.push(("task_leftovers", few(&left)));
        }
    }
    if let Some(probe) = probe.filter(|p| p.at.saturating_add(FRESH) > unix && p.status == CheckStatus::Fail)
    {
        all.push(("task_probe_failed", few(&probe.failed)));
    }
    all
}

fn few(all: &[String]) -> String {
    let named = all
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heartbeat_sees_what_the_task_domain_has_found_while_it_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let tasks = TaskDir::new(dir.path());
        assert!(News::of(None).read(1000).is_empty());
        let mut news = News::of(Some(dir.path()));
        assert!(news.read(1000).is_empty());
        let report = Report {
            at: 1000,
            left: (1..=4).map(|n| format!("thing {n}")).collect(),
            damaged: vec!["t-1.log".into()],
            ..Report::default()
        };
        report.save(&tasks).unwrap();
        let failed = Probed {
            at: 1000,
            status: CheckStatus::Fail,
            failed: vec!["memory: 3 MiB are left".into()],
        };
        failed.save(&tasks);
        let expected = [
            ("task_journal_damaged", "t-1.log".to_owned()),
            (
                "task_leftovers",
                "thing 1; thing 2; thing 3; and 1 more".to_owned(),
            ),
            ("task_probe_failed", "memory: 3 MiB are left".to_owned()),
        ];
        assert_eq!(news.read(1001), expected);
        assert!(news.read(1000 + FRESH).is_empty(), "of yesterday");
        std::fs::remove_file(tasks.probe()).unwrap();
        assert_eq!(news.read(1002).len(), 2);
    }
}
