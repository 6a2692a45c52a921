use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad a trouble is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Look at it today.
    Warning,
    /// Look at it now: reports or nodes are at stake.
    Critical,
}

impl Severity {
    /// The word in alerts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Every trouble of the daemon's own by its code, and whether it keeps the daemon from being ready.
pub const TROUBLES: &[(&str, Severity, bool)] = &[
    ("account_unknown", Severity::Critical, true),
    ("alert_sink_failing", Severity::Warning, false),
    ("anchor_failing", Severity::Warning, false),
    ("block_time_off", Severity::Warning, true),
    ("certificate_expiring", Severity::Warning, false),
    ("certificate_unused", Severity::Warning, false),
    ("chain_halted", Severity::Critical, true),
    ("chain_unreachable", Severity::Critical, true),
    ("controls_failing", Severity::Critical, true),
    ("endpoint_lost", Severity::Warning, false),
    ("events_behind", Severity::Warning, true),
    ("index_missing", Severity::Warning, false),
    ("insufficient_funds", Severity::Critical, true),
    ("key_shared", Severity::Warning, false),
    ("key_unusable", Severity::Critical, true),
    ("not_synced", Severity::Warning, true),
    ("reload_failed", Severity::Warning, true),
    ("reports_unsettled", Severity::Critical, false),
    ("row_unreadable", Severity::Warning, false),
    ("server_certificate", Severity::Critical, true),
    ("simulation_missing", Severity::Warning, false),
    ("store_failing", Severity::Critical, true),
    ("task_key_unusable", Severity::Warning, true),
    ("transactions_refused", Severity::Critical, true),
];

fn kind(code: &str) -> (Severity, bool) {
    TROUBLES
        .iter()
        .find(|(known, ..)| *known == code)
        .map_or((Severity::Warning, true), |(_, severity, blocks)| {
            (*severity, *blocks)
        })
}

/// What is wrong, such as why the daemon is not ready, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Stable word, such as `chain_unreachable`.
    pub code: Cow<'static, str>,
    /// For people.
    pub message: String,
}

/// Whether anything keeps the daemon from its work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Nothing does.
    pub ready: bool,
    /// What does.
    pub reasons: Vec<Reason>,
    /// What is wrong besides: the daemon works all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Reason>,
}

/// Something that is wrong, whether or not it keeps the daemon from being ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Stable word.
    pub code: &'static str,
    /// Of which of several, such as a key or an endpoint; empty where there is one.
    pub subject: String,
    /// For people.
    pub message: String,
    /// How bad.
    pub severity: Severity,
}

/// What keeps the daemon from doing all of its work. It accepts heartbeats all the same.
#[derive(Debug, Default)]
pub struct Health {
    wrong: RwLock<BTreeMap<(&'static str, String), String>>,
    starting: AtomicBool,
    heard: AtomicBool,
}

impl Health {
    /// Of a daemon that has just been started: it is not ready, which is no trouble, until [`Self::started`].
    #[must_use]
    pub fn starting() -> Self {
        Self {
            starting: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// The chain has been read once, or it is said why not.
    pub fn started(&self) {
        self.starting.store(false, Ordering::Relaxed);
    }

    /// The chain's condition is known, be it that it does not answer.
    pub fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Another gateway looks at the chain from here on: what was known of its condition grows old.
    pub fn stands_by(&self) {
        self.heard.store(false, Ordering::Relaxed);
    }

    /// Whether everything has been looked at once since the start, or since this gateway stood by: what is not wrong now is over.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        self.heard.load(Ordering::Relaxed) && !self.starting.load(Ordering::Relaxed)
    }

    /// Something is wrong; logged when it begins.
    pub fn raise(&self, code: &'static str, message: impl Into<String>) {
        self.raise_of(code, "", message);
    }

    /// Something is wrong with one of several, such as a key; what another one does cannot clear it.
    pub fn raise_of(&self, code: &'static str, subject: &str, message: impl Into<String>) {
        let message = message.into();
        let before = self
            .wrong
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((code, subject.to_owned()), message.clone());
        if before.is_none() {
            if kind(code).1 {
                tracing::warn!(code, "not ready: {message}");
            } else {
                tracing::warn!(code, "{message}");
            }
        }
    }

    /// It is right again; logged when it ends.
    pub fn clear(&self, code: &'static str) {
        self.clear_of(code, "");
    }

    /// One of several is right again.
    pub fn clear_of(&self, code: &'static str, subject: &str) {
        let before = self
            .wrong
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(code, subject.to_owned()));
        if before.is_some() {
            tracing::info!(code, subject, "no longer so");
        }
    }

    /// Whatever it is said of, it is no affair of this gateway any more.
    pub fn forget(&self, of: impl Fn(&str) -> bool) {
        let mut all = self.wrong.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(code, _), _| !of(code));
    }

    /// Raises or clears.
    pub fn set(&self, code: &'static str, wrong: Option<String>) {
        self.set_of(code, "", wrong);
    }

    /// Raises or clears, of one of several.
    pub fn set_of(&self, code: &'static str, subject: &str, wrong: Option<String>) {
        match wrong {
            Some(message) => self.raise_of(code, subject, message),
            None => self.clear_of(code, subject),
        }
    }

    /// Whether the daemon is ready, and what is wrong with it.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let reasons = self.reasons();
        Readiness {
            ready: reasons.is_empty(),
            reasons,
            notices: self.those(false),
        }
    }

    /// Every reason not to be ready; none: ready.
    #[must_use]
    pub fn reasons(&self) -> Vec<Reason> {
        self.those(true)
    }

    fn those(&self, that_block: bool) -> Vec<Reason> {
        let map = self.wrong.read().unwrap_or_else(PoisonError::into_inner);
        let starting = that_block && self.starting.load(Ordering::Relaxed);
        let start = starting.then(|| Reason {
            code: Cow::Borrowed("starting"),
            message: "the nodes on record are being read from the chain".to_owned(),
        });
        let wrong = map
            .iter()
            .filter(|((code, _), _)| kind(code).1 == that_block)
            .map(|((code, _), message)| Reason {
                code: Cow::Borrowed(code),
                message: message.clone(),
            });
        start.into_iter().chain(wrong).collect()
    }

    /// Everything that is wrong.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        let map = self.wrong.read().unwrap_or_else(PoisonError::into_inner);
        map.iter()
            .map(|((code, subject), message)| Trouble {
                code,
                subject: subject.clone(),
                message: message.clone(),
                severity: kind(code).0,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_success_of_one_key_does_not_clear_the_trouble_of_another() {
        let health = Health::default();
        health.raise_of("insufficient_funds", "a", "send tokens to a");
        health.raise_of("insufficient_funds", "b", "send tokens to b");
        health.clear_of("insufficient_funds", "b");
        let reasons = health.reasons();
        assert_eq!(reasons.len(), 1);
        assert_eq!(reasons[0].message, "send tokens to a");
    }

    #[test]
    fn what_does_not_keep_the_daemon_from_its_work_is_a_notice_and_no_reason() {
        let health = Health::default();
        health.raise_of("endpoint_lost", "http://a", "does not answer");
        let said = health.readiness();
        assert!(said.ready && said.reasons.is_empty());
        assert_eq!(said.notices[0].code, "endpoint_lost");
        assert_eq!(health.troubles().len(), 1);
    }

    #[test]
    fn a_daemon_that_starts_is_not_ready_and_nobody_is_alarmed() {
        let health = Health::starting();
        let said = health.readiness();
        assert!(!said.ready && said.reasons[0].code == "starting");
        assert!(said.notices.is_empty() && health.troubles().is_empty());
        health.started();
        assert!(health.readiness().ready);
        assert!(!health.has_looked(), "the chain may be about to answer");
        health.heard();
        assert!(health.has_looked());
        health.stands_by();
        assert!(!health.has_looked(), "another gateway looks");
    }

    /// The codes that the sources of `dir` raise.
    fn codes(dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                codes(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for call in [".raise(", ".raise_of(", ".set(", ".set_of("] {
                    for (at, _) in text.match_indices(call) {
                        let rest = text[at + call.len()..].trim_start();
                        let quoted = rest.strip_prefix('"').and_then(|r| r.split('"').next());
                        found.extend(
                            quoted
                                .filter(|c| c.starts_with(char::is_alphabetic))
                                .map(str::to_owned),
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_code_that_is_raised_is_listed_with_its_severity_and_in_the_runbook() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = Vec::new();
        codes(&root.join("src"), &mut found);
        assert!(found.iter().any(|c| c == "not_synced"), "{found:?}");
        let listed: Vec<&str> = TROUBLES.iter().map(|(code, ..)| *code).collect();
        for code in found {
            assert!(listed.contains(&code.as_str()), "{code} is not in TROUBLES");
        }
        assert!(listed.is_sorted());
        let runbook = std::fs::read_to_string(root.join("../../docs/provider.md")).unwrap();
        for code in listed {
            assert!(
                runbook.contains(&format!("`{code}`")),
                "{code} has no row in docs/provider.md"
            );
        }
    }
}
