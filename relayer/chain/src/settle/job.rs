//! The rules about a transaction under way: when it is sent, what an endpoint's word is worth, what a block proves.

use super::action::{Action, Alarm};
use super::state::{AccountView, Job, Outstanding, Phase, State};
use super::types::{CheckTx, Config, End, EndpointId, Inclusion, SignedTx};
use crate::code::Verdict;
use crate::hash::TxHash;

impl State {
    /// The questions that every new height asks again.
    pub(super) fn on_new_height(&mut self, height: u64, out: &mut Vec<Action>) {
        let Some(job) = &self.job else { return };
        match &job.phase {
            Phase::Queued => out.push(Action::QueryAccount),
            Phase::Planned { request } => out.push(Action::Sign(*request)),
            Phase::Signed { tx } | Phase::Sent { tx } => {
                out.push(Action::QueryTx { hash: tx.hash });
                let reread = self.view.reread_at.is_some_and(|at| at <= height);
                if reread {
                    self.view.reread_at = None;
                }
                if reread || height >= tx.timeout_height || tx.refused.is_some() {
                    out.push(Action::QueryAccount);
                }
                if let Some(at) = self.view.consumed_at {
                    out.push(scan(tx, at));
                }
            }
            Phase::Ended { .. } => {}
        }
    }

    /// Sends the outstanding bytes to every endpoint whose turn it is.
    pub(super) fn broadcast(&mut self, config: &Config, out: &mut Vec<Action>) {
        let Some(Job {
            phase: Phase::Signed { tx } | Phase::Sent { tx },
            ..
        }) = &self.job
        else {
            return;
        };
        // Above T the bytes are refused everywhere; before the sequence is visible, by that endpoint.
        let used = self.view.consumed_at.is_some();
        if used || !self.view.is_live() || self.view.top_height().is_none_or(|top| top >= tx.timeout_height) {
            return;
        }
        let since = self.account.map_or(0, |a| a.since);
        let due: Vec<(EndpointId, u64)> = self
            .view
            .heads
            .iter()
            .filter(|(id, height)| {
                **height >= since && self.view.next_send.get(id).is_none_or(|next| next <= height)
            })
            .map(|(id, height)| (*id, *height))
            .collect();
        if due.is_empty() {
            return;
        }
        for (id, height) in &due {
            self.view
                .next_send
                .insert(*id, height.saturating_add(config.rebroadcast_blocks));
        }
        out.push(Action::Broadcast {
            hash: tx.hash,
            endpoints: due.into_iter().map(|(id, _)| id).collect(),
        });
    }

    /// Bytes for [`Phase::Planned`]. What no longer fits was never sent, so it is dropped and asked for again.
    pub(super) fn signed(&mut self, now_ms: u64, signed: SignedTx, out: &mut Vec<Action>) {
        let SignedTx { request, bytes } = signed;
        let Some(Job {
            batch,
            phase: phase @ Phase::Planned { .. },
        }) = &mut self.job
        else {
            return;
        };
        if *phase != (Phase::Planned { request }) || *batch != request.batch {
            return;
        }
        let Some(top) = self.view.top_height().filter(|top| *top < request.timeout_height) else {
            *phase = Phase::Queued;
            out.push(Action::QueryAccount);
            return;
        };
        *phase = Phase::Signed {
            tx: Outstanding {
                hash: TxHash::of(&bytes),
                bytes,
                account_number: request.account_number,
                sequence: request.sequence,
                timeout_height: request.timeout_height,
                signed_height: top,
                signed_at_ms: now_ms,
                refused: None,
            },
        };
        out.push(Action::Persist);
    }

    /// An endpoint's word on the bytes: it moves `Signed` to `Sent` and times the next try, and proves no end.
    pub(super) fn check_tx(
        &mut self,
        config: &Config,
        endpoint: EndpointId,
        hash: TxHash,
        answer: CheckTx,
        out: &mut Vec<Action>,
    ) {
        let Some(job) = &mut self.job else { return };
        let (Phase::Signed { tx } | Phase::Sent { tx }) = &job.phase else {
            return;
        };
        if tx.hash != hash {
            return;
        }
        let first = matches!(job.phase, Phase::Signed { .. });
        let tx = tx.clone();
        let soon = self.view.heads.get(&endpoint).map(|h| h.saturating_add(1));
        let retry_soon = |view: &mut super::view::View| {
            if let Some(height) = soon {
                view.next_send.insert(endpoint, height);
            }
        };
        match answer {
            CheckTx::Unclear => retry_soon(&mut self.view),
            CheckTx::Answered {
                verdict,
                code,
                codespace,
                log,
            } => match verdict {
                Verdict::Accepted | Verdict::AlreadyInCache => {}
                Verdict::MempoolFull => retry_soon(&mut self.view),
                Verdict::WrongSequence {
                    expected: Some(expected),
                    got: Some(got),
                } if expected < got => {
                    // The recheck race after a commit: the endpoint will know better in a few blocks.
                    retry_soon(&mut self.view);
                    let at = self
                        .view
                        .top_height()
                        .map(|h| h.saturating_add(config.reread_blocks));
                    self.view.reread_at = self.view.reread_at.or(at);
                }
                Verdict::WrongSequence { .. } => {
                    // Most often our own bytes, waiting in its mempool or in a block.
                    out.push(Action::QueryTx { hash });
                    out.push(Action::QueryAccount);
                }
                Verdict::TimeoutHeight => out.push(Action::QueryAccount),
                verdict @ (Verdict::OutOfGas
                | Verdict::InsufficientFee
                | Verdict::InsufficientFunds
                | Verdict::FeeGrant
                | Verdict::Unauthorized
                | Verdict::TxTooLarge
                | Verdict::ContractError
                | Verdict::Other) => {
                    if self.view.alarmed.insert(endpoint, code) != Some(code) {
                        out.push(Action::Alarm(Alarm::Refused {
                            endpoint,
                            verdict,
                            code,
                            codespace,
                            log,
                        }));
                    }
                }
            },
        }
        if first {
            job.phase = Phase::Sent { tx };
            out.insert(0, Action::Persist);
        }
    }

    /// The hash is in a block. Code 0 ends it; another code may have left the sequence unused, so the same bytes could
    /// still take effect: only the account tells.
    pub(super) fn found(&mut self, inclusion: Inclusion, out: &mut Vec<Action>) {
        let Some(job) = &mut self.job else { return };
        let (Phase::Signed { tx } | Phase::Sent { tx }) = &mut job.phase else {
            return;
        };
        if tx.hash != inclusion.hash {
            return;
        }
        if inclusion.code == 0 {
            self.included(inclusion, out);
        } else if tx.refused.as_ref() != Some(&inclusion) {
            tx.refused = Some(inclusion);
            out.push(Action::Persist);
            out.push(Action::QueryAccount);
        }
    }

    /// All blocks in which it could be were read after the sequence was seen used; those `gone` have it, and nobody knows
    /// with which result. `unread`: some are pruned, and may have it.
    pub(super) fn scanned(
        &mut self,
        hash: TxHash,
        (from, to): (u64, u64),
        inclusions: Vec<Inclusion>,
        (gone, unread): (&[u64], bool),
        out: &mut Vec<Action>,
    ) {
        let Some(Job {
            phase: Phase::Signed { tx } | Phase::Sent { tx },
            ..
        }) = &self.job
        else {
            return;
        };
        let Some(consumed_at) = self.view.consumed_at else {
            return;
        };
        let covers = from <= tx.signed_height.saturating_add(1) && to >= last_possible(tx, consumed_at);
        if tx.hash != hash || !covers {
            return;
        }
        let refused = tx.refused.clone();
        let sequence = tx.sequence;
        let mut ours: Vec<Inclusion> = inclusions.into_iter().filter(|i| i.hash == hash).collect();
        if let Some(at) = ours.iter().position(|i| i.code == 0) {
            self.included(ours.swap_remove(at), out);
            return;
        }
        let is_known = |at: &u64| ours.iter().chain(&refused).any(|i| i.height == *at);
        let untold = unread || !gone.iter().all(is_known);
        let consumed = |overtaken| End::Consumed {
            height: consumed_at,
            overtaken,
        };
        match ours.pop().or(refused) {
            // What it has done only the contract knows, and it is asked for no result again.
            _ if untold => self.end(consumed(false), out),
            Some(result) => self.end(End::Failed(result), out),
            None => {
                out.push(Action::Alarm(Alarm::ForeignTransaction { sequence }));
                self.end(consumed(true), out);
            }
        }
    }

    /// It took effect: the sequence after it is known at its height.
    fn included(&mut self, inclusion: Inclusion, out: &mut Vec<Action>) {
        if let Some(tx) = self.outstanding() {
            let next = AccountView {
                number: tx.account_number,
                sequence: tx.sequence.saturating_add(1),
                height: inclusion.height,
                since: inclusion.height,
            };
            if self.account.is_none_or(|a| a.height < next.height) {
                self.account = Some(next);
            }
        }
        self.end(End::Included(inclusion), out);
    }

    pub(super) fn end(&mut self, end: End, out: &mut Vec<Action>) {
        let Some(job) = &mut self.job else { return };
        let (Phase::Signed { tx } | Phase::Sent { tx }) = &job.phase else {
            return;
        };
        job.phase = Phase::Ended {
            tx: tx.clone(),
            result: end.clone(),
        };
        self.view.forget_transaction();
        out.push(Action::Persist);
        self.announce(end, out);
    }
}

/// Reads the blocks in which the transaction can have taken effect, its sequence having been seen used at `consumed_at`.
pub(super) fn scan(tx: &Outstanding, consumed_at: u64) -> Action {
    Action::ScanBlocks {
        hash: tx.hash,
        from: tx.signed_height.saturating_add(1),
        to: last_possible(tx, consumed_at),
    }
}

/// The last block in which it can have taken effect: none above T. After a long downtime the present height is far above.
fn last_possible(tx: &Outstanding, consumed_at: u64) -> u64 {
    consumed_at.min(tx.timeout_height)
}
