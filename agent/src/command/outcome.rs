//! How an order ended.

use hpc_schema::code::Code;
use hpc_schema::command::{AcknowledgementStatus, MAX_ACKNOWLEDGEMENT_REPORT};
use serde::{Deserialize, Serialize};

use super::detail;

/// How an order ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// UNIX seconds.
    pub at: u64,
    /// Done, failed or refused.
    pub status: AcknowledgementStatus,
    /// Why not; a code's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people, or a diagnostic's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// All of a diagnostic's result, until the gateway has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

impl Outcome {
    /// Carried out.
    #[must_use]
    pub fn done(at: u64, text: &str) -> Self {
        Self {
            at,
            status: AcknowledgementStatus::Done,
            code: None,
            detail: Some(detail(text)).filter(|d| !d.is_empty()),
            report: None,
        }
    }

    /// With the whole report, unless it is longer than one may be.
    #[must_use]
    pub fn with_report(self, report: &serde_json::Value) -> Self {
        let report = Some(report.to_string()).filter(|r| r.len() <= MAX_ACKNOWLEDGEMENT_REPORT);
        Self { report, ..self }
    }

    /// Begun and not carried out.
    #[must_use]
    pub fn failed(at: u64, text: &str) -> Self {
        Self {
            status: AcknowledgementStatus::Failed,
            ..Self::done(at, text)
        }
    }

    /// Not begun.
    #[must_use]
    pub fn refused(at: u64, code: Code, text: &str) -> Self {
        Self {
            status: AcknowledgementStatus::Refused,
            code: Some(code.as_str().to_owned()),
            ..Self::done(at, text)
        }
    }

    /// Without the report, which the gateway does not take; it stays on this node.
    pub(super) fn without_report(&mut self) {
        self.report = None;
        let text = format!(
            "the gateway takes no report of this size (413), it lies on the node; {}",
            self.detail.as_deref().unwrap_or_default()
        );
        self.detail = Some(detail(&text));
    }
}
