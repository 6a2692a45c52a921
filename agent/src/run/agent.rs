use std::pin::pin;
use std::time::{Duration, Instant};

use hpc_schema::heartbeat::{HealthStatus, Jobs};
use hpc_schema::node::NodeState;
use hpc_schema::report::Tag;
use tokio::sync::mpsc;

use super::peers::Peers;
use super::{Timing, unix_seconds};
use crate::config::{Config, ConfigError};
use crate::files::FileError;
use crate::heartbeat::{Finding, SectionTracker, jobs, judge};
use crate::key::{KeyFileError, NodeKey};
use crate::log::LogHandle;
use crate::probe::fingerprint;
use crate::random;
use crate::sample::{Adaptive, Category, Sampler, Schedule, standard};
use crate::sequence::{Sequence, SequenceError};
use crate::state::{Lock, Registration, StateDir, Status};
use crate::uplink::{Backoff, Client, Identity, TlsError};

/// Longest wait for figures before a heartbeat leaves without them.
const SAMPLE_BUDGET: Duration = Duration::from_millis(1500);

/// What the process is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, SIGINT: say goodbye and end.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Why the agent cannot run. Trouble with the gateway is never among them.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The counter cannot be used.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Not registered yet.
    #[error("this node is not registered; run: virtengine-node-agent register --config …")]
    NotRegistered,
    /// The key is not the one that was registered.
    #[error(
        "agent.key_path holds {present}, the node is registered with {registered}; restore that key, or register again with a new token"
    )]
    OtherKey {
        /// In the file.
        present: String,
        /// On record.
        registered: String,
    },
    /// Another agent runs on this state.
    #[error(
        "another agent runs on {path}; two would use the same sequence numbers: stop it, or set another agent.state_dir"
    )]
    Running {
        /// The state directory.
        path: String,
    },
}

/// Reads the configuration again.
pub type Reread = Box<dyn Fn() -> Result<Config, ConfigError> + Send>;

/// The running agent.
pub struct Agent {
    pub(super) config: Config,
    pub(super) timing: Timing,
    pub(super) key: NodeKey,
    pub(super) state: StateDir,
    pub(super) registration: Registration,
    pub(super) tag: Tag,
    pub(super) sequence: Sequence,
    pub(super) sampler: Sampler,
    pub(super) adaptive: Adaptive,
    pub(super) client: Client,
    pub(super) identity: Option<Identity>,
    pub(super) certificate_refused: bool,
    pub(super) renew_not_before: Instant,
    pub(super) renew_backoff: Backoff,
    pub(super) backoff: Backoff,
    pub(super) section: SectionTracker,
    pub(super) status: Status,
    /// Between heartbeats, as agreed with the gateway.
    pub(super) interval: Duration,
    /// The present heartbeat is sent out of turn.
    pub(super) out_of_turn: bool,
    pub(super) last_health: Option<HealthStatus>,
    pub(super) last_jobs: Option<Jobs>,
    pub(super) last_warning: Option<&'static str>,
    pub(super) hardware_findings: Vec<Finding>,
    pub(super) peers: Peers,
    pub(super) reread: Option<Reread>,
    pub(super) log: Option<LogHandle>,
    _lock: Lock,
}

impl Agent {
    /// Loads key, registration and counter, and takes the state directory for itself.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn new(config: Config, timing: Timing) -> Result<Self, RunError> {
        let state = StateDir::new(&config.state_dir);
        let key = crate::key::load(&config.key_path)?;
        let registration = Registration::load(&state)?.ok_or(RunError::NotRegistered)?;
        if registration.public_key != key.public() {
            return Err(RunError::OtherKey {
                present: key.public().to_base64(),
                registered: registration.public_key.to_base64(),
            });
        }
        state.create()?;
        let lock = Lock::take(&state)?.ok_or_else(|| RunError::Running {
            path: config.state_dir.display().to_string(),
        })?;
        let sequence = Sequence::open(&state.sequence(), registration.epoch, registration.last_sequence)?;
        let identity = super::certificate::best(&config, &state, &registration);
        let tls = super::certificate::tls(&config, &state, identity.as_ref())?;
        let client = Client::new(config.endpoints.clone(), tls, config.request_timeout);
        let hardware_findings = super::certificate::hardware(&registration, fingerprint::read(&config.roots));
        let now = unix_seconds();
        let status = Status {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at: now,
            node_id: Some(registration.node_id.to_string()),
            cluster_id: Some(registration.cluster_id.to_string()),
            interval_seconds: config.sampling.base_interval.as_secs(),
            sequence: sequence.last(),
            ..Status::default()
        };
        Ok(Self {
            sampler: Sampler::new(standard(&config.sources())),
            adaptive: Adaptive::default(),
            tag: registration.tag(),
            interval: config.sampling.base_interval,
            backoff: Backoff::new(timing.backoff_first, timing.backoff_longest),
            renew_backoff: Backoff::new(Duration::from_secs(30), Duration::from_secs(3600)),
            renew_not_before: Instant::now(),
            section: SectionTracker::default(),
            out_of_turn: false,
            certificate_refused: false,
            last_health: None,
            last_jobs: None,
            last_warning: None,
            peers: Peers::new(
                key.clone(),
                registration.cluster_id.clone(),
                registration.node_id.clone(),
            ),
            reread: None,
            log: None,
            config,
            timing,
            key,
            state,
            registration,
            sequence,
            client,
            identity,
            status,
            hardware_findings,
            _lock: lock,
        })
    }

    /// What SIGHUP does.
    pub fn on_reload(&mut self, reread: Reread, log: Option<LogHandle>) {
        self.reread = Some(reread);
        self.log = log;
    }

    /// Runs until [`Signal::Stop`]. Never ends by itself: whatever the gateway does, it waits and tries again.
    pub async fn run(mut self, mut signals: mpsc::Receiver<Signal>) {
        tracing::info!(
            node = %self.registration.node_id,
            cluster = %self.registration.cluster_id,
            gateway = %self.client.endpoint(),
            "started"
        );
        self.peers.answer(self.config.responder).await;
        tell_service_manager(&[sd_notify::NotifyState::Ready]);
        let watchdog = sd_notify::watchdog_enabled().map(|d| d / 2);
        let mut next_beat = Instant::now();
        let mut next_ping = Instant::now();
        loop {
            let now = Instant::now();
            if let Some(period) = watchdog
                && now >= next_ping
            {
                tell_service_manager(&[sd_notify::NotifyState::Watchdog]);
                next_ping = later(now, period);
            }
            if now >= next_beat {
                match self.beat_unless_stopped(&mut signals).await {
                    Some(pause) => next_beat = later(Instant::now(), pause),
                    None => break,
                }
                continue;
            }
            let mut wake = self.schedule(now).next(self.sampler.categories()).min(next_beat);
            if watchdog.is_some() {
                wake = wake.min(next_ping);
            }
            tokio::select! {
                biased;
                signal = signals.recv() => match signal {
                    Some(Signal::Reload) => self.reload(),
                    Some(Signal::Stop) | None => break,
                },
                () = tokio::time::sleep_until(wake.into()) => self.sample_due().await,
            }
            if self.health_changed() || self.work_ended() {
                next_beat = next_beat.min(later(Instant::now(), self.timing.out_of_turn));
                self.out_of_turn = true;
            }
        }
        tell_service_manager(&[sd_notify::NotifyState::Stopping]);
        self.farewell().await;
    }

    /// One heartbeat; none if told to stop meanwhile.
    async fn beat_unless_stopped(&mut self, signals: &mut mpsc::Receiver<Signal>) -> Option<Duration> {
        let mut reload = false;
        let pause = {
            let mut beat = pin!(self.beat());
            loop {
                tokio::select! {
                    biased;
                    signal = signals.recv() => match signal {
                        Some(Signal::Reload) => reload = true,
                        Some(Signal::Stop) | None => return None,
                    },
                    pause = &mut beat => break pause,
                }
            }
        };
        if reload {
            self.reload();
        }
        Some(pause)
    }

    pub(super) fn schedule(&self, now: Instant) -> Schedule<'_> {
        Schedule {
            config: &self.config.sampling,
            adaptive: &self.adaptive,
            now,
        }
    }

    async fn sample_due(&mut self) {
        let now = Instant::now();
        let schedule = self.schedule(now);
        let due: Vec<Category> = self
            .sampler
            .categories()
            .filter(|(c, last)| schedule.due(*c, *last))
            .map(|(c, _)| c)
            .collect();
        self.sample(&due).await;
    }

    /// Before a heartbeat leaves: what is due, and what would be too old before the next one.
    pub(super) async fn sample_before_sending(&mut self) {
        let now = Instant::now();
        let schedule = self.schedule(now);
        let due: Vec<Category> = self
            .sampler
            .categories()
            .filter(|(c, last)| schedule.due_before_sending(*c, *last, self.interval))
            .map(|(c, _)| c)
            .collect();
        self.sample(&due).await;
    }

    async fn sample(&mut self, due: &[Category]) {
        self.sampler.sample(|c| due.contains(&c), SAMPLE_BUDGET).await;
        self.adaptive
            .cpu(self.sampler.figures().cpu.fresh(Instant::now()).copied());
    }

    /// The node's judgement of itself now.
    pub(super) fn judge(&self) -> (HealthStatus, Vec<Finding>) {
        let stuck: Vec<&str> = self.sampler.stuck().iter().map(|s| s.name).collect();
        let (status, mut findings) = judge(self.sampler.figures(), &stuck, Instant::now());
        findings.extend(self.hardware_findings.iter().cloned());
        let status = if status == HealthStatus::Healthy && !self.hardware_findings.is_empty() {
            HealthStatus::Degraded
        } else {
            status
        };
        (status, findings)
    }

    fn health_changed(&self) -> bool {
        self.last_health.is_some_and(|last| last != self.judge().0)
    }

    /// The last job of a draining node has ended: the sooner it is drained, the sooner it can be serviced.
    fn work_ended(&self) -> bool {
        let running = |jobs: &Option<Jobs>| jobs.as_ref().and_then(|j| j.running_count);
        let now = jobs(self.sampler.figures().jobs.fresh(Instant::now()), None);
        let draining = self
            .status
            .chain
            .as_ref()
            .is_some_and(|c| c.node_state == NodeState::Draining);
        draining && running(&self.last_jobs).is_some_and(|n| n > 0) && running(&now) == Some(0)
    }

    /// Last heartbeat, counter, status: within five seconds whatever hangs.
    async fn farewell(mut self) {
        let limit = self.timing.farewell;
        if tokio::time::timeout(limit, self.say_goodbye()).await.is_err() {
            tracing::warn!("the gateway did not take the last heartbeat within {limit:?}");
        }
        self.status.stopped_at = Some(unix_seconds());
        self.save_status();
        if let Err(e) = self.sequence.release() {
            tracing::warn!("the rest of the block of sequence numbers is skipped: {e}");
        }
        tracing::info!("stopped");
    }

    pub(super) fn save_status(&mut self) {
        self.status.stuck_collectors = self.sampler.stuck().iter().map(|s| s.name.to_owned()).collect();
        if let Err(e) = self.status.save(&self.state) {
            self.warn_once("status", &format!("status cannot be written: {e}"));
        }
    }

    /// Says the same kind of trouble once, until another kind or success comes between.
    pub(super) fn warn_once(&mut self, kind: &'static str, message: &str) {
        if self.last_warning != Some(kind) {
            tracing::warn!("{message}");
            self.last_warning = Some(kind);
        }
    }

    /// At most a tenth earlier than agreed, so that a thousand nodes do not beat together.
    pub(super) fn jittered(pause: Duration) -> Duration {
        let tenth = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) / 10;
        pause.saturating_sub(Duration::from_millis(random::up_to(tenth)))
    }
}

fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}

fn tell_service_manager(state: &[sd_notify::NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    sd_notify::notify(state).ok();
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("registration", &self.registration)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
