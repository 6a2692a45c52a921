//! Diagnostics that the provider orders: what this agent knows, at the moment.

use hpc_schema::code::Code;
use serde_json::json;

use super::Agent;
use super::orders::Begun;
use crate::clock::instant;
use crate::command::{Diagnostic, Facts, Outcome, Work};
use crate::history::{fields, values};
use crate::sample::Category;

impl Agent {
    /// Runs the diagnostic of that name, or begins to.
    pub(super) fn diagnose(&mut self, name: &str, now: u64) -> Begun {
        let Some(diagnostic) = Diagnostic::from_name(name) else {
            let text = format!("no diagnostic {name}; there are {}", Diagnostic::names());
            return Begun::Ended(Outcome::refused(now, Code::InvalidField, &text));
        };
        match diagnostic {
            Diagnostic::Storage => return Begun::OnThread(Work::Storage(self.state.path().to_owned())),
            Diagnostic::History => {
                let oldest = now.saturating_sub(self.config.sampling.metrics_retention.as_secs());
                return Begun::OnThread(Work::History(self.state.history(), oldest));
            }
            Diagnostic::Health | Diagnostic::Figures | Diagnostic::Uplink => {}
        }
        let (report, line) = self.facts(now).report(diagnostic);
        let outcome = Outcome::done(now, &line).with_report(&report);
        self.keep_report(diagnostic, now, report);
        Begun::Ended(outcome)
    }

    /// Keeps a report beside the last ones.
    pub(super) fn keep_report(&mut self, diagnostic: Diagnostic, now: u64, report: serde_json::Value) {
        self.keeper.report(diagnostic, now, report);
        self.sampler.attend();
    }

    fn facts(&mut self, at: u64) -> Facts {
        let moment = instant();
        let (health, findings) = self.judge();
        let figures = Category::ALL.into_iter().flat_map(|c| {
            let sample = values(c, self.sampler.figures(), moment);
            fields(c).iter().copied().zip(sample.figures)
        });
        Facts {
            at,
            health: health.as_str().to_owned(),
            findings: findings.iter().map(crate::health::Finding::shown).collect(),
            figures: figures.filter_map(|(name, n)| Some((name, n?))).collect(),
            endpoint: self.client.endpoint().to_owned(),
            gateway_latency_us: self.status.gateway_latency_us,
            clock_skew_ms: self.status.clock_skew_ms,
            accepted: self.status.accepted,
            failed: self.status.failed,
            outages: json!(self.outages),
        }
    }
}
