//! One heartbeat: measure, build, sign, send, follow the answer.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use hpc_schema::gateway::{HeartbeatResponse, HeartbeatResponseBody, Problem as HttpProblem, heartbeat_path};
use hpc_schema::heartbeat::{HealthStatus, SignHeartbeat, SignedHeartbeat, sign_heartbeat};

use super::answer::Refused;
use super::{Agent, Effects, Wall, effects, unix_seconds};
use crate::heartbeat::{Context, Held, build, capacity, jobs};
use crate::random;
use crate::sample::{Category, Reading};
use crate::state::{ChainView, Problem};
use crate::uplink::Answer;

/// The gateway's clock and ours may differ by this before it is worth a word; the protocol allows a minute ahead.
const SKEW_WORTH_A_WARNING_MS: u64 = 10_000;
/// Pause when the agent itself cannot make a heartbeat.
const OWN_TROUBLE: Duration = Duration::from_secs(5);

impl Agent {
    /// Sends one heartbeat and says how long to pause.
    pub(super) async fn beat(&mut self) -> Duration {
        self.status.last_attempt_at = Some(unix_seconds());
        let out_of_turn = std::mem::take(&mut self.out_of_turn);
        self.sample_before_sending().await;
        self.measure_peers().await;
        if let Err(pause) = self.ensure_certificate().await {
            return self.failed(pause);
        }
        let signed = match self.make(None) {
            Ok(signed) => signed,
            Err(message) => {
                self.problem("agent_trouble", &message, "see the agent's log");
                self.save_status();
                return OWN_TROUBLE;
            }
        };
        let result = self.send(&signed).await;
        let pause = match result {
            Ok((answer, wall)) => self.follow(&answer, wall, out_of_turn),
            Err(pause) => self.failed(pause),
        };
        // The first list of peers is measured at once.
        self.measure_peers().await;
        self.save_status();
        // The disk may be slow or full: better now than when the block has run out.
        if let Err(e) = self.sequence.prepare() {
            self.warn_once(
                "sequence",
                &format!("no further sequence numbers can be reserved yet: {e}"),
            );
        }
        pause
    }

    /// Takes over what came of the peers, and begins the next round when it is time to. Does not wait for it.
    async fn measure_peers(&mut self) {
        let now = Instant::now();
        let s = &self.config.sampling;
        let interval = s.interval(Category::Latency);
        let ended = self
            .peers
            .step(now, interval, s.latency_probe_count, s.latency_probe_timeout)
            .await;
        if let Some(measured) = ended {
            self.sampler.put(Reading::Peers(measured), now);
        }
    }

    /// The last heartbeat of a clean stop.
    pub(super) async fn say_goodbye(&mut self) {
        // The present connection may wait for an answer that nobody needs any more.
        self.client.disconnect();
        match self.make(Some(HealthStatus::Offline)) {
            Ok(signed) => {
                if let Ok((answer, wall)) = self.send(&signed).await {
                    self.follow(&answer, wall, true);
                    tracing::info!(status = answer.status, "the gateway knows that this node stops");
                }
            }
            Err(message) => tracing::warn!("no last heartbeat: {message}"),
        }
    }

    /// Builds and signs the next heartbeat.
    fn make(&mut self, status: Option<HealthStatus>) -> Result<SignedHeartbeat, String> {
        self.sampler.gather();
        let now = Instant::now();
        let figures = self.sampler.figures();
        let capacity = capacity(figures, Held::default(), self.config.reserve, now).ok_or(
            "cores or memory of this machine cannot be read; check agent.roots.proc and agent.roots.sys",
        )?;
        let (judged, findings) = self.judge();
        let health = status.unwrap_or(judged);
        // A clean stop is no news about the machine.
        if status.is_none() && self.last_health.is_some_and(|last| last != health) {
            let words: Vec<&str> = findings.iter().map(|f| f.message.as_str()).collect();
            tracing::warn!(health = health.as_str(), "health changed: {}", words.join("; "));
            self.adaptive.changed(now, self.interval.saturating_mul(2));
        }
        self.last_jobs = jobs(self.sampler.figures().jobs.fresh(now), self.last_jobs.as_ref());
        let number = self.sequence.advance().map_err(|e| e.to_string())?;
        let sequence = NonZeroU32::new(number).ok_or("sequence number 0")?;
        let timestamp = Wall::now().rfc3339().ok_or("the clock is beyond the year 9999")?;
        let heartbeat = build(
            Context {
                node_id: &self.registration.node_id,
                cluster_id: &self.registration.cluster_id,
                sequence,
                timestamp,
                capacity,
                status: health,
                findings: &findings,
                jobs: self.last_jobs.clone(),
                gateway_latency_us: self.status.gateway_latency_us,
                chain_latency_ms: self.status.chain.as_ref().and_then(|c| c.latency_ms),
            },
            self.sampler.figures(),
            now,
        );
        let what = SignHeartbeat {
            heartbeat: &heartbeat,
            nonce: random::bytes().map_err(|e| format!("no randomness from the kernel: {e}"))?,
            tag: &self.tag,
            job_ids: self.registration.job_ids,
            settled_section: self.section.settled(),
        };
        let signed = sign_heartbeat(&what, |message| {
            Ok::<_, std::convert::Infallible>(self.key.sign(message))
        })
        .map_err(|e| e.to_string())?;
        self.section.sent(number, signed.report.section_digest);
        self.last_health = Some(health);
        self.status.health = Some(health.as_str().to_owned());
        self.status.findings = findings
            .iter()
            .map(|f| format!("{}: {}", f.code, f.message))
            .collect();
        self.status.sequence = number;
        Ok(signed)
    }

    /// Sends it; the error is the pause that a server asked for, if it did.
    async fn send(&mut self, signed: &SignedHeartbeat) -> Result<(Answer, Wall), Option<Duration>> {
        let body = match serde_json::to_vec(&signed.request) {
            Ok(body) => body,
            Err(e) => {
                self.problem("agent_trouble", &e.to_string(), "see the agent's log");
                return Err(None);
            }
        };
        let path = heartbeat_path(&self.registration.node_id);
        let result = self.client.post(&path, body).await;
        self.status.endpoint = Some(self.client.endpoint());
        match result {
            Ok(answer) => {
                self.status.gateway_latency_us = u64::try_from(answer.latency.as_micros()).ok();
                Ok((answer, Wall::now()))
            }
            Err(e) => {
                self.certificate_refused = e.certificate_refused();
                self.problem(e.code(), &e.to_string(), e.remedy());
                self.client.fail_over();
                Err(None)
            }
        }
    }

    /// What the answer says, and the pause until the next heartbeat.
    fn follow(&mut self, answer: &Answer, wall: Wall, out_of_turn: bool) -> Duration {
        if answer.status == 200 {
            match serde_json::from_slice::<HeartbeatResponseBody>(&answer.body) {
                Ok(body) => return self.follow_response(&body.response, wall, out_of_turn),
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
        let code = problem
            .as_ref()
            .map_or_else(|| format!("http_{}", answer.status), |p| p.code.clone());
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
        if answer.status == 429 || answer.status >= 500 {
            self.problem(&code, &message, remedy);
            return self.failed(answer.retry_after);
        }
        self.refused(&Refused {
            code,
            message,
            remedy: remedy.to_owned(),
        });
        self.timing.refused.max(self.interval)
    }

    fn follow_response(&mut self, response: &HeartbeatResponse, wall: Wall, out_of_turn: bool) -> Duration {
        self.backoff.reset();
        self.status.failures_in_a_row = 0;
        self.check_clock(response, wall);
        self.status.sequence_ack = response.sequence_ack;
        if let Some(chain) = &response.chain {
            if chain.epoch == self.registration.epoch {
                self.section.covered(chain.settled_sequence);
            }
            self.follow_chain(ChainView {
                node_state: chain.node_state,
                settled_sequence: chain.settled_sequence,
                height: chain.height,
                epoch: chain.epoch,
                latency_ms: chain.latency_ms,
            });
        }
        if response.accepted {
            self.peers.take_over(&response.peers);
        }
        if let Some(updates) = &response.config_updates {
            self.update_config(updates);
        }
        let Effects {
            interval,
            pause,
            jitter,
            raise_sequence,
            section_missing,
            refusal,
        } = effects(response, out_of_turn, &self.timing);
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
            None => self.accepted(response),
        }
        self.out_of_turn = pause == self.timing.out_of_turn;
        if jitter { Self::jittered(pause) } else { pause }
    }

    fn accepted(&mut self, response: &HeartbeatResponse) {
        if self.status.last_accepted_at.is_none() {
            tracing::info!(gateway = %self.client.endpoint(), sequence = self.status.sequence, "first heartbeat accepted");
        } else if self.last_warning.is_some() {
            tracing::info!(gateway = %self.client.endpoint(), "heartbeats are accepted again");
        }
        self.last_warning = None;
        self.status.last_accepted_at = Some(unix_seconds());
        self.status.accepted = self.status.accepted.saturating_add(1);
        self.status.last_refusal = None;
        self.status.last_error = None;
        for notice in &response.errors {
            tracing::info!(code = %notice.code, "notice of the gateway: {}", notice.message);
        }
    }

    fn refused(&mut self, refused: &Refused) {
        self.status.failed = self.status.failed.saturating_add(1);
        let new = self
            .status
            .last_refusal
            .as_ref()
            .is_none_or(|r| r.code != refused.code);
        if new {
            tracing::error!(code = %refused.code, "heartbeat refused: {}; {}", refused.message, refused.remedy);
        }
        self.last_warning = Some("refused");
        self.status.last_refusal = Some(Problem {
            at: unix_seconds(),
            code: refused.code.clone(),
            message: refused.message.clone(),
            remedy: refused.remedy.clone(),
        });
    }

    /// An attempt that came to nothing: how long to wait.
    fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let pause = self.backoff.next(random::up_to);
        self.status.failed = self.status.failed.saturating_add(1);
        self.status.failures_in_a_row = self.backoff.failures();
        self.save_status();
        match asked {
            // Never longer than a node may be silent.
            Some(asked) => asked.clamp(pause, self.timing.longest_interval.max(pause)),
            None => pause,
        }
    }

    pub(super) fn problem(&mut self, code: &str, message: &str, remedy: &str) {
        if self.status.last_error.as_ref().is_none_or(|p| p.code != code) {
            tracing::warn!(code, "{message}; {remedy}");
        } else {
            tracing::debug!(code, "{message}");
        }
        self.last_warning = Some("failed");
        self.status.last_error = Some(Problem {
            at: unix_seconds(),
            code: code.to_owned(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        });
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
                self.adaptive
                    .changed(Instant::now(), self.interval.saturating_mul(2));
            }
        }
        self.status.chain = Some(view);
    }

    fn check_clock(&mut self, response: &HeartbeatResponse, wall: Wall) {
        let skew = wall.skew_of(&response.timestamp);
        self.status.clock_skew_ms = Some(skew);
        if skew.unsigned_abs() > SKEW_WORTH_A_WARNING_MS {
            let way = if skew > 0 { "behind" } else { "ahead of" };
            let seconds = skew.unsigned_abs() / 1000;
            let message = format!(
                "this node's clock is {seconds} s {way} the gateway's; synchronise it (NTP): heartbeats more than 5 min old or 1 min ahead are refused"
            );
            self.warn_once("clock", &message);
        }
    }
}
