//! [`step`]: which input leads where. The rules about a transaction under way are in `job.rs`.

use super::action::Action;
use super::input::Input;
use super::state::{Job, Phase, State};
use super::types::{Config, End};
use super::view::View;

/// Takes one input in and says what is to be done, in this order.
///
/// `now_ms` is the caller's wall clock in UNIX milliseconds. Pure: no IO, no clock, no randomness.
pub fn step(state: &mut State, config: &Config, now_ms: u64, input: Input) -> Vec<Action> {
    let mut out = Vec::new();
    state.view.tick(config, now_ms, &mut out);
    match input {
        Input::Tick | Input::NotFound { .. } => {}
        Input::Restarted => state.restart(&mut out),
        Input::Submit { batch } => {
            if state.job.is_some() {
                out.push(Action::Busy { batch });
            } else {
                state.job = Some(Job {
                    batch,
                    phase: Phase::Queued,
                });
                state.view.forget_transaction();
                out.push(Action::QueryAccount);
            }
        }
        Input::Signed(signed) => {
            state.signed(now_ms, signed, &mut out);
            state.broadcast(config, &mut out);
        }
        Input::Withdrawn { batch } => {
            let nothing_sent = |j: &Job| matches!(j.phase, Phase::Queued | Phase::Planned { .. });
            if state
                .job
                .as_ref()
                .is_some_and(|j| j.batch == batch && nothing_sent(j))
            {
                state.job = None;
            }
        }
        Input::Head {
            endpoint,
            height,
            block_time_ms,
        } => {
            let higher = state
                .view
                .head(config, now_ms, endpoint, height, block_time_ms, &mut out);
            if higher {
                state.on_new_height(height, &mut out);
            }
            state.broadcast(config, &mut out);
        }
        Input::EndpointLost { endpoint } => {
            state.view.heads.remove(&endpoint);
        }
        Input::Account {
            height,
            account_number,
            sequence,
        } => {
            state.view.account_unknown = false;
            state.account_answer(config, height, account_number, sequence, &mut out);
        }
        Input::AccountUnknown { height } => state.account_unknown(height, &mut out),
        Input::CheckTx {
            endpoint,
            hash,
            answer,
        } => {
            state.check_tx(config, endpoint, hash, answer, &mut out);
        }
        Input::Found(inclusion) => state.found(inclusion, &mut out),
        Input::Scanned {
            hash,
            from,
            to,
            inclusions,
            gone,
            unread,
        } => {
            state.scanned(hash, (from, to), inclusions, (&gone, unread), &mut out);
        }
        Input::Settled { batch } => {
            let ended = |j: &Job| j.batch == batch && matches!(j.phase, Phase::Ended { .. });
            if state.job.as_ref().is_some_and(ended) {
                state.job = None;
                out.push(Action::Persist);
            }
        }
    }
    out
}

impl State {
    /// What was signed is followed on; what was not is forgotten; what has ended is told again.
    fn restart(&mut self, out: &mut Vec<Action>) {
        self.view = View::default();
        let Some(job) = &mut self.job else { return };
        match &job.phase {
            Phase::Queued | Phase::Planned { .. } => self.job = None,
            // Whether the bytes left before the crash is unknown: treat them as sent.
            Phase::Signed { tx } | Phase::Sent { tx } => {
                out.push(Action::QueryTx { hash: tx.hash });
                out.push(Action::QueryAccount);
                job.phase = Phase::Sent { tx: tx.clone() };
            }
            Phase::Ended { result, .. } => {
                let result = result.clone();
                self.announce(result, out);
            }
        }
    }

    /// Says that the batch has ended.
    pub(super) fn announce(&self, end: End, out: &mut Vec<Action>) {
        let Some(Job { batch, .. }) = self.job else { return };
        out.push(match end {
            End::Consumed { height, overtaken } => Action::QueryNodeSequences {
                batch,
                height,
                overtaken,
            },
            end => Action::Finished { batch, end },
        });
    }
}
