//! One heartbeat: measure, build, sign, send, follow the answer.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use hpc_schema::gateway::heartbeat_path;
use hpc_schema::heartbeat::{HealthStatus, SignHeartbeat, SignedHeartbeat, UnsignedHeartbeat};

use super::Agent;
use super::measure::keys;
use crate::clock::{Wall, instant};
use crate::heartbeat::{Context, build, capacity, jobs, with_held};
use crate::key::SigningError;
use crate::probe::errors::Errors;
use crate::probe::slurm::Answer as Slurm;
use crate::random;
use crate::sample::{Category, max_staleness};
use crate::state::{ErrorCounts, JobCounts};
use crate::uplink::Answer;

/// Seconds.
const DAY: u64 = 86_400;
/// Bytes of a request beside its payload, most often.
const BESIDE: usize = 1024;
/// Pause when the agent itself cannot make a heartbeat.
const OWN_TROUBLE: Duration = Duration::from_secs(5);

impl Agent {
    /// Sends one heartbeat and says how long to pause.
    pub(super) async fn beat(&mut self) -> Duration {
        self.status.last_attempt_at = Some(self.clock.seconds());
        let out_of_turn = std::mem::take(&mut self.out_of_turn);
        if self.sequence.is_used_up() {
            // Before collectors are asked: a slow one would be waited for.
            self.ask_for_numbers();
            self.sampler.attend();
        }
        self.sample_before_sending().await;
        self.measure_peers().await;
        // A certificate that no longer counts costs no heartbeat: the same one goes out under the next.
        let mut again = true;
        let pause = loop {
            if let Err(pause) = self.ensure_certificate().await {
                return self.failed(pause);
            }
            let signed = match self.make(None).await {
                Ok(signed) => signed,
                Err(message) => {
                    self.problem("agent_trouble", &message, "see the agent's log");
                    self.save_status();
                    return OWN_TROUBLE;
                }
            };
            match self.send(&signed).await {
                Ok((answer, _)) if answer.status == 401 && std::mem::take(&mut again) => {
                    self.certificate_refused = true;
                }
                Ok((answer, wall)) => break self.follow(&signed, &answer, wall, out_of_turn),
                Err(_) if self.certificate_refused && std::mem::take(&mut again) => {}
                Err(pause) => break self.failed(pause),
            }
        };
        // The first list of peers is measured at once.
        self.measure_peers().await;
        // The disk may be slow or full: better now than when the block has run out.
        self.ask_for_numbers();
        self.save_status();
        pause
    }

    /// The last heartbeat of a clean stop.
    pub(super) async fn say_goodbye(&mut self) {
        // The present connection may wait for an answer that nobody needs any more.
        self.client.disconnect();
        match self.make(Some(HealthStatus::Offline)).await {
            Ok(signed) => {
                if let Ok((answer, wall)) = self.send(&signed).await {
                    self.follow(&signed, &answer, wall, true);
                    tracing::info!(status = answer.status, "the gateway knows that this node stops");
                }
            }
            Err(message) => tracing::warn!("no last heartbeat: {message}"),
        }
    }

    /// Builds and signs the next heartbeat.
    async fn make(&mut self, status: Option<HealthStatus>) -> Result<SignedHeartbeat, String> {
        self.reserve_numbers().await;
        self.sampler.gather();
        // It may have come later than was waited for.
        self.slurm_kept().await;
        let held = self.task_files.holdings().held;
        let now = instant();
        let figures = self.sampler.figures();
        let capacity = capacity(figures, held, self.config.reserve, self.slurm_cpus, now).ok_or(
            "cores or memory of this machine cannot be read; check agent.roots.proc and agent.roots.sys",
        )?;
        let (judged, findings) = self.judged();
        let health = status.unwrap_or(judged);
        // A clean stop is no news about the machine, and an order's outcome stays news while no gateway takes it.
        if status.is_none() && self.state_changed(health, &findings) {
            if self.last_health != Some(health) {
                if health == HealthStatus::Healthy {
                    tracing::info!(health = health.as_str(), "health changed");
                } else {
                    let words: Vec<&str> = findings.iter().map(|f| f.message.as_str()).collect();
                    tracing::warn!(health = health.as_str(), "health changed: {}", words.join("; "));
                }
            }
            self.adaptive.changed(now, self.interval.saturating_mul(2));
        }
        self.last_jobs = jobs(self.sampler.figures().jobs.fresh(now), self.last_jobs.as_ref());
        self.status.work.clone_from(&self.task_files.holdings().work);
        let running = with_held(self.last_jobs.clone(), &self.task_files.holdings().work);
        self.last_running = running.as_ref().and_then(|j| j.running_count);
        let number = self.sequence.advance().map_err(|e| e.to_string())?;
        let sequence = NonZeroU32::new(number).ok_or("sequence number 0")?;
        let timestamp = self
            .clock
            .wall()
            .rfc3339()
            .ok_or("the clock is beyond the year 9999")?;
        let heartbeat = build(
            Context {
                node_id: &self.registration.node_id,
                cluster_id: &self.registration.cluster_id,
                sequence,
                timestamp,
                capacity,
                status: health,
                findings: &findings,
                jobs: running,
                gateway_latency_us: self
                    .status
                    .gateway_latency_us
                    .filter(|_| fresh(self.gateway_measured, now)),
                chain_latency_ms: self
                    .status
                    .chain
                    .as_ref()
                    .and_then(|c| c.latency_ms)
                    .filter(|_| fresh(self.chain_measured, now)),
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
        let unsigned = UnsignedHeartbeat::new::<SigningError>(&what).map_err(|e| e.to_string())?;
        let [payload, report] = unsigned.messages();
        let signatures = [
            self.key.sign(payload).await.map_err(|e| e.to_string())?,
            self.key.sign(report).await.map_err(|e| e.to_string())?,
        ];
        let mut signed = unsigned.signed(signatures);
        tracing::debug!("heartbeat payload {}", signed.request.heartbeat.get());
        signed.request.acknowledgements = self.orders.acknowledgements();
        self.section.sent(number, signed.report.section_digest);
        self.last_health = Some(health);
        self.last_findings = keys(&findings);
        self.status.health = Some(health.as_str().to_owned());
        self.status.findings = findings.iter().map(crate::health::Finding::shown).collect();
        self.status.sequence = number;
        self.count(now);
        self.show(judged, findings);
        Ok(signed)
    }

    /// What is counted over a day, for status.
    fn count(&mut self, now: Instant) {
        let unix = self.clock.seconds();
        let figures = self.sampler.figures();
        let errors = figures.errors.fresh(now);
        self.status.errors_24h_missing = errors.and_then(Errors::missing);
        self.status.errors_24h = errors.and_then(Errors::whole).map(|e| ErrorCounts {
            errors: e.errors,
            warnings: e.warnings,
            since: e.since,
        });
        self.status.jobs_24h = figures.jobs.fresh(now).and_then(|answer| match answer {
            Slurm::Said(j) => j.ended.map(|ended| JobCounts {
                completed: ended.completed,
                failed: ended.failed,
                since: j.since.max(unix.saturating_sub(DAY)),
            }),
            Slurm::NotHere | Slurm::Silent => None,
        });
    }

    /// Sends it; the error is the pause that a server asked for, if it did.
    async fn send(&mut self, signed: &SignedHeartbeat) -> Result<(Answer, Wall), Option<Duration>> {
        let mut body = Vec::with_capacity(signed.request.heartbeat.get().len().saturating_add(BESIDE));
        if let Err(e) = serde_json::to_writer(&mut body, &signed.request) {
            self.problem("agent_trouble", &e.to_string(), "see the agent's log");
            return Err(None);
        }
        let path = heartbeat_path(&self.registration.node_id);
        let result = self.client.post(&path, body).await;
        let endpoint = self.status.endpoint.get_or_insert_default();
        self.client.endpoint().clone_into(endpoint);
        match result {
            Ok(answer) => {
                self.status.gateway_latency_us = u64::try_from(answer.latency.as_micros()).ok();
                self.status.gateway_latency_at = Some(self.clock.seconds());
                self.gateway_measured = Some(instant());
                Ok((answer, self.clock.wall()))
            }
            Err(e) => {
                self.certificate_refused = e.certificate_refused();
                self.problem(e.code(), &e.to_string(), e.remedy());
                self.client.fail_over();
                Err(None)
            }
        }
    }
}

/// Whether a latency measured then may still be sent.
fn fresh(measured: Option<Instant>, now: Instant) -> bool {
    measured.is_some_and(|at| now.saturating_duration_since(at) <= max_staleness(Category::Latency))
}
