//! Figures of this node, taken on schedule, and what follows from them at once.

use std::time::{Duration, Instant};

use hpc_schema::heartbeat::HealthStatus;
use hpc_schema::node::NodeState;

use super::Agent;
use super::keep::STATE_DIRECTORY;
use crate::api::View;
use crate::clock::instant;
use crate::health::{Beside, Finding, findings, status};
use crate::heartbeat::{jobs, slurm_cpus, with_held};
use crate::history::values;
use crate::probe::slurm::LastWord;
use crate::sample::{Category, Reading, Schedule, max_staleness};

/// Longest wait for figures before a heartbeat leaves without them.
const SAMPLE_BUDGET: Duration = Duration::from_millis(1500);

/// What is due so long before a heartbeat is not measured apart.
const SHORTLY: Duration = Duration::from_secs(2);
/// A round that takes longer is waited for as one that was not planned.
const ROUND: Duration = Duration::from_millis(200);

impl Agent {
    /// Has the next round begin by itself, for the next heartbeat or before; when the loop wakes up at the latest.
    pub(super) fn plan_round(&mut self, now: Instant, next_beat: Instant) -> Instant {
        // What is due follows from what has been read by now.
        self.take_round();
        // What is overdue begins now: it is as old as its beginning.
        let round = self.schedule(now).next(self.sampler.categories()).max(now);
        // What would be measured shortly before a heartbeat is measured for it: each wake-up costs.
        let apart = round.checked_add(SHORTLY).is_some_and(|at| at < next_beat);
        let at = if apart { round } else { next_beat };
        let due = if apart {
            self.due(at)
        } else {
            self.due_before_sending(at)
        };
        let begins = self.sampler.plan(|c| due.contains(&c), at);
        begins.and_then(|begins| begins.checked_add(ROUND)).unwrap_or(at)
    }

    /// Takes over a round that began by itself.
    pub(super) fn take_round(&mut self) {
        let read = self.sampler.take_read();
        if !read.is_empty() {
            self.take_over(&read);
        }
    }

    pub(super) fn schedule(&self, now: Instant) -> Schedule<'_> {
        Schedule {
            config: &self.config.sampling,
            adaptive: &self.adaptive,
            now,
            gpus: self.sampler.figures().had_gpus,
        }
    }

    pub(super) async fn sample_due(&mut self) {
        self.take_round();
        let due = self.due(instant());
        self.sample(&due).await;
    }

    /// Before a heartbeat leaves: what is due, and what would be too old before the next one.
    pub(super) async fn sample_before_sending(&mut self) {
        self.take_round();
        let due = self.due_before_sending(instant());
        self.sample(&due).await;
    }

    fn due(&self, at: Instant) -> Vec<Category> {
        let schedule = self.schedule(at);
        let all = self.sampler.categories();
        all.filter(|(c, last)| schedule.due(*c, *last))
            .map(|(c, _)| c)
            .collect()
    }

    fn due_before_sending(&self, at: Instant) -> Vec<Category> {
        let schedule = self.schedule(at);
        let all = self.sampler.categories();
        all.filter(|(c, last)| schedule.due_before_sending(*c, *last, self.interval))
            .map(|(c, _)| c)
            .collect()
    }

    async fn sample(&mut self, due: &[Category]) {
        self.sampler.sample(|c| due.contains(&c), SAMPLE_BUDGET).await;
        // Beside what was asked for, what had begun before.
        let read = self.sampler.take_read();
        let beside = read.iter().filter(|c| !due.contains(c));
        let all: Vec<_> = due.iter().chain(beside).copied().collect();
        if !all.is_empty() {
            self.take_over(&all);
        }
    }

    fn take_over(&mut self, categories: &[Category]) {
        let now = instant();
        self.adaptive.cpu(self.sampler.figures().cpu.fresh(now).copied());
        let news = self.keep_slurm();
        for category in categories {
            self.remember(*category, now);
        }
        if !news {
            self.sampler.attend_soon();
        }
        (self.unshown, self.unjudged) = (true, true);
    }

    /// Has what Slurm said last of this node kept, at once if it is news; whether it is. Does not wait for the disk.
    pub(super) fn keep_slurm(&mut self) -> bool {
        // Another machine has others.
        let cpus = self.slurm_cpus.filter(|_| self.hardware.changed().is_none());
        self.slurm_cpus = slurm_cpus(self.sampler.figures(), cpus);
        let word = LastWord {
            cpus: self.slurm_cpus,
            drained: self.sampler.figures().drained.clone(),
        };
        let news = self.keeper.slurm(word);
        if news {
            self.sampler.attend();
        }
        news
    }

    /// Puts what is known where the local interface finds it, once after each round of measuring.
    pub(super) fn show(&mut self, health: HealthStatus, findings: Vec<Finding>) {
        if !std::mem::take(&mut self.unshown) {
            return;
        }
        let held = self.task_files.holdings().held;
        self.board.put(View {
            figures: self.sampler.figures().clone(),
            held,
            reserve: self.config.reserve,
            slurm_cpus: self.slurm_cpus,
            health,
            findings,
        });
    }

    /// The same before something else than a heartbeat is waited for.
    pub(super) fn show_measured(&mut self) {
        if self.unshown {
            let (health, findings) = self.judge();
            self.show(health, findings);
        }
    }

    /// Looks whether this is the machine that was registered, where it is time to.
    pub(super) fn look_at_hardware(&mut self) {
        let registered = self.registration.fingerprint.as_ref();
        self.hardware
            .look(registered, &self.config.roots, self.timing.hardware);
    }

    /// Reads what the task domain has to say; of what cannot be read the last word counts.
    pub(super) fn look_at_tasks(&mut self) {
        let unix = self.clock.seconds();
        match self.task_files.look(unix) {
            Ok(()) => self.over("holdings", "what tasks hold can be read again"),
            Err(e) => self.warn_once("holdings", &format!("what tasks hold is as it was before: {e}")),
        }
    }

    /// Keeps a sample of `category`.
    fn remember(&mut self, category: Category, now: Instant) {
        let values = values(category, self.sampler.figures(), now);
        let unix = self.clock.seconds();
        self.keeper.sample(category, values, unix, now);
    }

    /// Takes over what came of the peers, and begins the next round when it is time to. Does not wait for it.
    pub(super) async fn measure_peers(&mut self) {
        let now = instant();
        let s = &self.config.sampling;
        // A round that would be too old by the heartbeat after the next one begins now.
        let latest = max_staleness(Category::Latency).saturating_sub(self.interval.saturating_mul(2));
        let interval = self
            .adaptive
            .interval(Category::Latency, s.interval(Category::Latency), now)
            .min(latest);
        let ended = self
            .peers
            .step(now, interval, s.latency_probe_count, s.latency_probe_timeout)
            .await;
        if let Some((measured, began)) = ended {
            // As old as its oldest answer may be.
            self.sampler.put(Reading::Peers(measured), began);
            self.remember(Category::Latency, now);
        }
    }

    /// The node's judgement of itself now, by what was read of the tasks just now.
    pub(super) fn judge(&mut self) -> (HealthStatus, Vec<Finding>) {
        self.look_at_tasks();
        self.judged()
    }

    /// The same by what was read of them before.
    pub(super) fn judged(&mut self) -> (HealthStatus, Vec<Finding>) {
        let stuck = self.stuck();
        let unix = self.clock.seconds();
        let beside = Beside {
            tasks: self.task_files.news(),
            stuck: &stuck,
            ordered: self.orders.drained(),
            out: self.service.out(),
            skew_ms: self.status.clock_skew_ms,
            hardware: self.hardware.changed(),
            unix,
        };
        let now = instant();
        let found = findings(self.sampler.figures(), &beside, now);
        let all = self.held.update(found, now);
        (status(&all), all)
    }

    /// What does not answer: collectors, the folder of tasks, the state directory.
    pub(super) fn stuck(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.sampler.stuck().iter().map(|s| s.name).collect();
        let beside = [
            (self.task_files.hang(), "tasks folder"),
            (self.disk.hangs(), STATE_DIRECTORY),
        ];
        for (hangs, name) in beside {
            if hangs && !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }

    /// Whether there is news that should not wait: the node's state has changed, or an order has its outcome.
    pub(super) fn changed(&self, health: HealthStatus, findings: &[Finding]) -> bool {
        self.state_changed(health, findings) || (self.last_health.is_some() && self.orders.has_news())
    }

    /// Whether this node is another than the last heartbeat said: another health, a new finding (a GPU is lost), the last
    /// job of a draining node has ended.
    pub(super) fn state_changed(&self, health: HealthStatus, findings: &[Finding]) -> bool {
        let Some(last) = self.last_health else {
            return false;
        };
        last != health
            || findings
                .iter()
                .any(|f| !self.last_findings.iter().any(|(code, of)| f.key() == (*code, of)))
            || self.work_ended()
    }

    /// The last work of a draining node has ended: the sooner it is drained, the sooner it can be serviced.
    fn work_ended(&self) -> bool {
        let chain = self.status.chain.as_ref();
        let draining = chain.is_some_and(|c| c.node_state == NodeState::Draining);
        if !draining || self.last_running.is_none_or(|n| n == 0) {
            return false;
        }
        let now = jobs(self.sampler.figures().jobs.fresh(instant()), None);
        let now = with_held(now, &self.task_files.holdings().work);
        now.and_then(|j| j.running_count) == Some(0)
    }
}

/// What is found, and of what: two GPUs that are lost are two findings.
pub(super) fn keys(findings: &[Finding]) -> Vec<(&'static str, String)> {
    let key = |f: &Finding| (f.kind.code, f.subject.clone());
    findings.iter().map(key).collect()
}
