//! The node's judgement of itself: findings from evidence, each with its weight and what to do. Pure but for the probe
//! of site checks.
//!
//! A busy node is healthy: full use is what it is for. Degraded means that work may suffer, unhealthy that new work
//! should not be given. `docs/agent-health.md` is the catalogue.

mod catalogue;
mod devices;
mod hold;
mod machine;
mod service;
#[cfg(test)]
mod tests;

use std::time::Instant;

use hpc_schema::heartbeat::HealthStatus;

pub use catalogue::{Action, CATALOGUE, Kind, kind, table};
pub use hold::Held;
pub use service::{Drains, OutOfService, Policy, Proof, Reason, Step, Watch};

use crate::sample::Figures;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; the node is healthy.
    Notice,
    /// Work may suffer.
    Degraded,
    /// No new work should be given.
    Unhealthy,
    /// The site drains the node: outranks the others, or a fault that comes and goes would end the drain.
    Draining,
}

/// Something that is wrong with this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its line in the catalogue.
    pub kind: &'static Kind,
    /// Which of several parts it is about (a GPU, a port, a check); empty if there is only one.
    pub subject: String,
    /// For people.
    pub message: String,
}

impl Finding {
    /// What it is and of what: two GPUs that fail are two troubles.
    #[must_use]
    pub fn key(&self) -> (&'static str, &str) {
        (self.kind.code, &self.subject)
    }

    /// `code: message; what to do`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!(
            "{}: {}; {}",
            self.kind.code,
            self.message,
            self.kind.action.advice()
        )
    }
}

/// What is known beside the figures.
#[derive(Debug, Default, Clone, Copy)]
pub struct Beside<'a> {
    /// Collectors that do not answer.
    pub stuck: &'a [&'a str],
    /// The provider has this node drained.
    pub ordered: bool,
    /// The agent keeps this node out of service, and why.
    pub out: Option<&'a OutOfService>,
    /// The gateway's clock minus ours.
    pub skew_ms: Option<i64>,
    /// What the task domain has found: code of the catalogue, and words.
    pub tasks: &'a [(&'static str, String)],
    /// Why the machine is not the one that was registered.
    pub hardware: Option<&'a str>,
    /// UNIX seconds.
    pub unix: u64,
}

/// Everything that is wrong, the gravest first.
#[must_use]
pub fn findings(figures: &Figures, beside: &Beside<'_>, now: Instant) -> Vec<Finding> {
    let mut all = Findings::default();
    machine::memory(figures, now, &mut all);
    machine::disks(figures, beside, now, &mut all);
    machine::heat(figures, now, &mut all);
    machine::messages(figures, beside, now, &mut all);
    machine::agent(beside, &mut all);
    machine::checks(figures, now, &mut all);
    devices::slurm(figures, beside, now, &mut all);
    devices::gpus(figures, now, &mut all);
    devices::faults(figures, now, &mut all);
    devices::instruments(figures, beside, now, &mut all);
    let mut found = all.0;
    found.sort_by_key(|f| std::cmp::Reverse(f.kind.severity));
    found
}

/// What the findings come to.
#[must_use]
pub fn status(findings: &[Finding]) -> HealthStatus {
    match findings.iter().map(|f| f.kind.severity).max() {
        None | Some(Severity::Notice) => HealthStatus::Healthy,
        Some(Severity::Degraded) => HealthStatus::Degraded,
        Some(Severity::Unhealthy) => HealthStatus::Unhealthy,
        Some(Severity::Draining) => HealthStatus::Draining,
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Of the node as a whole.
    fn add(&mut self, code: &str, message: impl Into<String>) {
        self.add_of(code, "", message);
    }

    /// Of one of several parts. Every code has its line; a test goes through all of them.
    fn add_of(&mut self, code: &str, subject: &str, message: impl Into<String>) {
        if let Some(kind) = kind(code) {
            self.0.push(Finding {
                kind,
                subject: subject.to_owned(),
                message: message.into(),
            });
        }
    }
}
