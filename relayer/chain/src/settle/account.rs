//! What an account answer proves, at the height that the answer itself states.

use super::action::{Action, Alarm};
use super::job::scan;
use super::state::{AccountView, Job, Phase, State};
use super::types::{Config, End, SignRequest};

impl State {
    /// The account as some endpoint has it at `height`, a height that the answer itself states.
    pub(super) fn account_answer(
        &mut self,
        config: &Config,
        height: u64,
        number: u64,
        sequence: u64,
        out: &mut Vec<Action>,
    ) {
        let known = self.account;
        if known.is_some_and(|k| height < k.height) {
            return; // an endpoint that is behind
        }
        if let Some(k) = known.filter(|k| sequence < k.sequence) {
            out.push(Action::Alarm(Alarm::SequenceRegressed {
                known: k.sequence,
                chain: sequence,
            }));
        }
        let since = known
            .filter(|k| k.sequence == sequence)
            .map_or(height, |k| k.since);
        self.account = Some(AccountView {
            number,
            sequence,
            height,
            since,
        });

        let Some(job) = &mut self.job else { return };
        match &job.phase {
            Phase::Queued => {
                if !self.view.is_live() {
                    return;
                }
                let Some(timeout_height) = self.view.timeout_height(config) else {
                    return;
                };
                let request = SignRequest {
                    batch: job.batch,
                    account_number: number,
                    sequence,
                    timeout_height,
                };
                job.phase = Phase::Planned { request };
                out.push(Action::Sign(request));
            }
            Phase::Signed { tx } | Phase::Sent { tx } if sequence > tx.sequence => {
                // The first such height is kept: above it our bytes cannot take effect any more.
                if self.view.consumed_at.is_none() {
                    self.view.consumed_at = Some(height);
                    out.push(Action::QueryTx { hash: tx.hash });
                    out.push(scan(tx, height));
                }
            }
            // A halted chain expires nothing: the proof is asked for again when heights grow.
            Phase::Signed { tx } | Phase::Sent { tx }
                if height >= tx.timeout_height && !self.view.is_halted() =>
            {
                let end = tx.refused.clone().map_or(End::Expired { height }, End::Failed);
                self.end(end, out);
            }
            Phase::Planned { .. } | Phase::Signed { .. } | Phase::Sent { .. } | Phase::Ended { .. } => {}
        }
    }

    /// No such account: nothing can be signed. Read at T or above it proves as much as an unused sequence does.
    pub(super) fn account_unknown(&mut self, height: u64, out: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.view.account_unknown, true) {
            out.push(Action::Alarm(Alarm::AccountUnknown));
        }
        let Some(Job {
            phase: Phase::Signed { tx } | Phase::Sent { tx },
            ..
        }) = &self.job
        else {
            return;
        };
        if height >= tx.timeout_height && !self.view.is_halted() {
            self.account = None;
            self.end(End::Expired { height }, out);
        }
    }
}
