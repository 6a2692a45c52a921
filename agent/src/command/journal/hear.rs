use hpc_schema::command::{Acknowledgement, AcknowledgementStatus, MAX_ACKNOWLEDGEMENTS};

use super::Journal;
use super::entry::Heard;

impl Journal {
    /// What the gateway has to hear, outcomes first.
    #[must_use]
    pub fn acknowledgements(&self) -> Vec<Acknowledgement> {
        // One report at a time: a heartbeat has room for no more.
        let mut reported = false;
        let outcomes = self.entries.iter().filter_map(|e| {
            let o = e.outcome.as_ref().filter(|_| e.heard != Heard::Outcome)?;
            if o.report.is_some() && std::mem::replace(&mut reported, true) {
                return None;
            }
            Some(Acknowledgement {
                report: o.report.clone(),
                command_id: e.command_id.clone(),
                status: o.status,
                code: o.code.clone(),
                detail: o.detail.clone(),
            })
        });
        let under_way = self
            .entries
            .iter()
            .filter(|e| e.outcome.is_none() && e.heard == Heard::Nothing);
        let accepted = under_way.map(|e| Acknowledgement {
            command_id: e.command_id.clone(),
            status: AcknowledgementStatus::Accepted,
            code: None,
            detail: None,
            report: None,
        });
        outcomes.chain(accepted).take(MAX_ACKNOWLEDGEMENTS).collect()
    }

    /// Whether an outcome waits to be heard.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.entries
            .iter()
            .any(|e| e.outcome.is_some() && e.heard != Heard::Outcome)
    }

    /// The gateway has taken these; whether that was news.
    pub fn heard(&mut self, told: &[Acknowledgement]) -> bool {
        let mut news = false;
        for ack in told {
            let Some(entry) = self.find(&ack.command_id) else {
                continue;
            };
            let heard = if ack.status == AcknowledgementStatus::Accepted {
                Heard::Accepted
            } else {
                Heard::Outcome
            };
            news |= entry.heard != heard;
            entry.heard = heard;
            if let Some(outcome) = entry.outcome.as_mut().filter(|_| heard == Heard::Outcome) {
                outcome.report = None;
            }
        }
        news
    }

    /// The gateway refuses a heartbeat with these as too large: reports are left out of what it hears from now on.
    /// Whether there was one.
    pub fn too_large(&mut self, told: &[Acknowledgement]) -> bool {
        let mut news = false;
        for ack in told.iter().filter(|a| a.report.is_some()) {
            if let Some(outcome) = self.find(&ack.command_id).and_then(|e| e.outcome.as_mut()) {
                outcome.without_report();
                news = true;
            }
        }
        news
    }
}
