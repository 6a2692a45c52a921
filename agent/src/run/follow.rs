//! What the gateway answered, and what follows from it.

use std::time::Duration;

use hpc_schema::gateway::{HeartbeatResponse, HeartbeatResponseBody, Problem as HttpProblem};
use hpc_schema::heartbeat::SignedHeartbeat;

use super::answer::{Refused, verified};
use super::{Agent, Effects, effects};
use crate::clock::{Wall, instant};
use crate::random;
use crate::state::{ChainView, Problem, Receipt};
use crate::status::SKEW_MS;
use crate::uplink::Answer;

impl Agent {
    /// What the answer says, and the pause until the next heartbeat.
    pub(super) fn follow(
        &mut self,
        sent: &SignedHeartbeat,
        answer: &Answer,
        wall: Wall,
        out_of_turn: bool,
    ) -> Duration {
        if answer.status == 200 {
            match serde_json::from_slice::<HeartbeatResponseBody>(&answer.body) {
                Ok(body) => return self.follow_response(sent, &body.response, wall, out_of_turn),
                Err(e) => {
                    self.problem(
                        "bad_answer",
                        &format!("the gateway's answer cannot be read: {e}"),
                        "upgrade the older side",
                    );
                    return self.failed(None);
                }
            }
        }
        let problem = serde_json::from_slice::<HttpProblem>(&answer.body).ok();
        let body = answer.shown();
        let code = problem
            .as_ref()
            .map_or_else(|| format!("http_{}", answer.status), |p| p.code.clone());
        // Each kind of refusal once, with what it says.
        let said = |p: &Option<crate::state::Problem>| p.as_ref().is_some_and(|p| p.code == code);
        if !said(&self.status.last_refusal) && !said(&self.status.last_error) {
            tracing::warn!(
                status = answer.status,
                body,
                "the gateway does not take the heartbeat"
            );
        }
        let remedy = problem
            .as_ref()
            .and_then(HttpProblem::code)
            .map_or("see the gateway's log", hpc_schema::code::Code::remedy);
        let message = problem.map_or_else(
            || format!("the gateway answered HTTP {}", answer.status),
            |p| p.detail,
        );
        if answer.status == 401 {
            self.certificate_refused = true;
        }
        // A request that came too slowly is nobody's fault, and the next one may be quicker.
        if matches!(answer.status, 408 | 425 | 429) || answer.status >= 500 {
            self.problem(&code, &message, remedy);
            // Another gateway need not be in the same trouble.
            if answer.status >= 500 && self.client.has_others() {
                self.client.fail_over();
                return self.failed(None);
            }
            return self.failed(answer.retry_after);
        }
        if answer.status == 413 && !self.leaves && self.orders_too_large(&sent.request.acknowledgements) {
            return self.timing.out_of_turn;
        }
        self.refused(&Refused {
            code,
            message,
            remedy: remedy.to_owned(),
        });
        self.timing.refused.max(self.interval)
    }

    fn follow_response(
        &mut self,
        sent: &SignedHeartbeat,
        response: &HeartbeatResponse,
        wall: Wall,
        out_of_turn: bool,
    ) -> Duration {
        self.backoff.reset();
        self.status.failures_in_a_row = 0;
        self.check_clock(response, wall);
        self.status.sequence_ack = response.sequence_ack;
        if let Some(chain) = &response.chain {
            if chain.epoch == self.registration.epoch {
                self.section.covered(chain.settled_sequence);
            }
            self.chain_measured = Some(instant());
            self.follow_chain(ChainView {
                node_state: chain.node_state,
                settled_sequence: chain.settled_sequence,
                height: chain.height,
                epoch: chain.epoch,
                latency_ms: chain.latency_ms,
                told_at: Some(self.clock.seconds()),
            });
        }
        if response.accepted {
            self.peers.take_over(&response.peers);
        }
        if !self.leaves {
            self.take_told(sent, response);
        }
        let Effects {
            interval,
            pause,
            jitter,
            raise_sequence,
            section_missing,
            unknown,
            refusal,
        } = effects(response, out_of_turn, self.unknown, &self.timing);
        self.unknown = unknown;
        if section_missing {
            self.section.missing();
        }
        if let Some(floor) = raise_sequence {
            self.sequence.raise(floor);
        }
        self.interval = interval;
        self.status.interval_seconds = interval.as_secs();
        match refusal {
            Some(refused) => self.refused(&refused),
            None => self.accepted(sent, response),
        }
        self.out_of_turn = pause == self.timing.out_of_turn;
        if jitter { Self::jittered(pause) } else { pause }
    }

    /// What must be kept. It is told again until the gateway hears of it.
    fn take_told(&mut self, sent: &SignedHeartbeat, response: &HeartbeatResponse) {
        if verified(response) {
            self.orders_heard(&sent.request.acknowledgements);
        }
        self.follow_task_key(&response.task_keys);
        self.take_orders(&response.commands);
        // All that is set comes with each answer: what an accepted one lacks is set no more.
        let updates = response.config_updates.as_ref();
        if response.accepted || updates.is_some() {
            self.take_updates(updates);
        }
    }

    fn accepted(&mut self, sent: &SignedHeartbeat, response: &HeartbeatResponse) {
        if self.status.last_accepted_at.is_none() {
            tracing::info!(gateway = %self.client.endpoint(), sequence = self.status.sequence, "first heartbeat accepted");
        }
        let now = self.clock.seconds();
        self.over("failed", "heartbeats arrive again");
        self.over("refused", "heartbeats are accepted again");
        if self.outages.end(now) {
            self.keeper.outages(&self.outages);
        }
        self.doubt.ends();
        self.status.last_accepted_at = Some(now);
        self.status.last_accepted_sequence = Some(sent.report.sequence);
        self.status.accepted = self.status.accepted.saturating_add(1);
        self.status.last_refusal = None;
        self.status.last_error = None;
        self.take_receipt(sent, response, now);
        // The next start does as well.
        if !self.leaves {
            self.prove();
        }
        for notice in &response.errors {
            tracing::info!(code = %notice.code, "notice of the gateway: {}", notice.message);
        }
    }

    /// What the gateway has stored, and what of it stands on chain: an operator can prove the one with the other.
    fn take_receipt(&mut self, sent: &SignedHeartbeat, response: &HeartbeatResponse, now: u64) {
        let sequence = sent.report.sequence;
        if response.sequence_ack < u64::from(sequence) {
            self.warn_once(
                "receipt",
                &format!(
                    "the gateway accepted heartbeat {sequence} and acknowledges {} only: it may lose what it accepts; see its log",
                    response.sequence_ack
                ),
            );
            return;
        }
        self.over("receipt", "the gateway acknowledges what it accepts again");
        self.status.receipt = Some(Receipt {
            sequence,
            payload_sha256: hex::encode(sent.report.payload_hash),
            accepted_at: now,
        });
    }

    fn refused(&mut self, refused: &Refused) {
        let now = self.clock.seconds();
        self.status.failed = self.status.failed.saturating_add(1);
        self.outage(now, &refused.code);
        let new = self
            .status
            .last_refusal
            .as_ref()
            .is_none_or(|r| r.code != refused.code);
        if new {
            tracing::error!(code = %refused.code, "heartbeat refused: {}; {}", refused.message, refused.remedy);
        }
        self.said.begins("refused");
        self.status.last_refusal = Some(Problem {
            at: now,
            code: refused.code.clone(),
            message: refused.message.clone(),
            remedy: refused.remedy.clone(),
        });
    }

    /// An attempt that came to nothing: how long to wait.
    pub(super) fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let pause = self.backoff.next(random::up_to);
        self.status.failed = self.status.failed.saturating_add(1);
        self.status.failures_in_a_row = self.backoff.failures();
        self.save_status();
        match asked {
            // Not all at once whom a gateway asked for the same; and never longer than a node may be silent.
            Some(asked) => asked
                .saturating_add(Self::spread(asked))
                .clamp(pause, self.timing.longest_interval.max(pause)),
            None => pause,
        }
    }

    pub(super) fn problem(&mut self, code: &str, message: &str, remedy: &str) {
        if self.status.last_error.as_ref().is_none_or(|p| p.code != code) {
            tracing::warn!(code, "{message}; {remedy}");
        } else {
            tracing::debug!(code, "{message}");
        }
        self.said.begins("failed");
        let now = self.clock.seconds();
        self.outage(now, code);
        self.status.last_error = Some(Problem {
            at: now,
            code: code.to_owned(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        });
    }

    fn outage(&mut self, now: u64, code: &str) {
        if self.outages.begin(now, code) {
            self.keeper.outages(&self.outages);
        }
    }

    fn follow_chain(&mut self, view: ChainView) {
        if view.epoch != self.registration.epoch {
            let message = format!(
                "the chain has registration epoch {}, this agent {}: the node was registered again elsewhere; register here with a new token",
                view.epoch, self.registration.epoch
            );
            self.warn_once("epoch", &message);
        }
        let before = self.status.chain.as_ref().map(|c| c.node_state);
        if before != Some(view.node_state) {
            tracing::info!(state = %view.node_state, "state on chain");
            if before.is_some() {
                self.adaptive.changed(instant(), self.interval.saturating_mul(2));
            }
        }
        let settled = |c: &ChainView| (c.epoch, c.settled_sequence);
        if self.status.chain.as_ref().map(settled) != Some(settled(&view)) {
            self.status.settled_at = Some(self.clock.seconds());
        }
        self.status.chain = Some(view);
    }

    fn check_clock(&mut self, response: &HeartbeatResponse, wall: Wall) {
        let skew = wall.skew_of(&response.timestamp);
        self.status.clock_skew_ms = Some(skew);
        if skew.unsigned_abs() > SKEW_MS {
            let way = if skew > 0 { "behind" } else { "ahead of" };
            let seconds = skew.unsigned_abs() / 1000;
            let message = format!(
                "this node's clock is {seconds} s {way} the gateway's; synchronise it (NTP): heartbeats more than 5 min old or 1 min ahead are refused"
            );
            self.warn_once("clock", &message);
        } else {
            self.over("clock", "this node's clock agrees with the gateway's again");
        }
    }
}
