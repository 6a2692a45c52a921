use std::sync::Arc;
use std::time::{Duration, Instant};

use hpc_schema::heartbeat::{HealthStatus, Jobs};
use hpc_schema::report::Tag;
use tokio::task::JoinHandle;

use super::anew::Anew;
use super::doubt::Doubt;
use super::error::RunError;
use super::hardware::Hardware;
use super::identity::Places;
use super::keep::Keeper;
use super::orders::Orders;
use super::peers::Peers;
use super::reread::{Reread, Rereading};
use super::said::Said;
use super::service::Service;
use super::settings::Settings;
use super::task_files::TaskFiles;
use super::world::{Timing, World};
use crate::api::Board;
use crate::clock::{Clock, instant};
use crate::config::Config;
use crate::files::FileError;
use crate::health::Held;
use crate::heartbeat::{SectionTracker, remembered_jobs};
use crate::key::{SharedSigner, load_registered};
use crate::log::LogHandle;
use crate::patient::Disk;
use crate::probe::slurm::LastWord;
use crate::register::same_node;
use crate::sample::{Adaptive, Sampler, Sources};
use crate::sequence::Sequence;
use crate::state::{Lock, Outages, Registration, ServiceWish, StateDir, Status};
use crate::timer::Timer;
use crate::update::{Running, Versions};
use crate::uplink::{Backoff, Client, Identity, Known, read_known};

/// The running agent.
pub struct Agent {
    pub(super) config: Config,
    pub(super) timing: Timing,
    pub(super) clock: Clock,
    pub(super) world: World,
    pub(super) key: SharedSigner,
    pub(super) state: StateDir,
    pub(super) registration: Registration,
    pub(super) tag: Tag,
    pub(super) sequence: Sequence,
    pub(super) sampler: Sampler,
    pub(super) adaptive: Adaptive,
    /// What the task domain holds and has found.
    pub(super) task_files: TaskFiles,
    /// Where the state directory is.
    pub(super) disk: Disk<Result<(), FileError>>,
    pub(super) client: Client,
    pub(super) identity: Option<Identity>,
    /// What the CA file held when it was read last: it may lie where nothing answers.
    pub(super) known: Known,
    pub(super) certificate_refused: bool,
    /// How long one lives that was issued and did not count by our clock.
    pub(super) issued_life: Option<Duration>,
    /// Whether that is our clock's fault.
    pub(super) doubt: Doubt,
    /// A look for keys on the disk that has not come back yet.
    pub(super) other_keys: Option<JoinHandle<Vec<SharedSigner>>>,
    /// A registration on the disk that has taken the place of ours, until it is taken over.
    pub(super) anew: Option<Anew>,
    /// It was: the next heartbeat need not wait.
    pub(super) begins_anew: bool,
    pub(super) renew_not_before: Instant,
    pub(super) renew_backoff: Backoff,
    pub(super) backoff: Backoff,
    /// Answers in a row of gateways that do not know this node.
    pub(super) unknown: u32,
    pub(super) section: SectionTracker,
    pub(super) status: Status,
    /// Writes both of them, and what else comes with every heartbeat.
    pub(super) keeper: Keeper,
    pub(super) outages: Outages,
    /// Between heartbeats, as agreed with the gateway.
    pub(super) interval: Duration,
    /// The present heartbeat is sent out of turn.
    pub(super) out_of_turn: bool,
    /// When one was last sent out of turn because of a change here.
    pub(super) last_early: Option<Instant>,
    pub(super) last_health: Option<HealthStatus>,
    /// What the last heartbeat had found, and of what.
    pub(super) last_findings: Vec<(&'static str, String)>,
    pub(super) last_jobs: Option<Jobs>,
    /// The CPUs of this node in Slurm, as it said last.
    pub(super) slurm_cpus: Option<u32>,
    /// How much ran here by the last heartbeat.
    pub(super) last_running: Option<u32>,
    /// When the round trip to the gateway was measured.
    pub(super) gateway_measured: Option<Instant>,
    /// When the gateway said how far the chain is.
    pub(super) chain_measured: Option<Instant>,
    pub(super) said: Said,
    /// Whether this is the machine that was registered.
    pub(super) hardware: Hardware,
    pub(super) held: Held,
    pub(super) peers: Peers,
    /// What the provider has ordered.
    pub(super) orders: Orders,
    /// Whether this node is in service.
    pub(super) service: Service,
    /// What a person wishes of that.
    pub(super) wish: Option<ServiceWish>,
    /// The version that runs.
    pub(super) running: Running,
    /// Until when it must have proven itself, if it has not yet.
    pub(super) trial: Option<Instant>,
    /// What is measured how often, by the file and by the gateway.
    pub(super) settings: Settings,
    /// What the collectors measure by.
    pub(super) sampled: Sources,
    /// Collectors with these take over as soon as the state directory answers.
    pub(super) sources: Option<Sources>,
    pub(super) reread: Option<Reread>,
    pub(super) rereading: Rereading,
    pub(super) log: Option<LogHandle>,
    pub(super) timer: Timer,
    /// What the local interface shows.
    pub(super) board: Arc<Board>,
    /// There are figures that it does not show yet.
    pub(super) unshown: bool,
    /// There are figures, or there is a configuration, that the loop has not judged by yet.
    pub(super) unjudged: bool,
    /// It is on its way out: nothing is begun that a slow disk would have to end first.
    pub(super) leaves: bool,
    pub(super) lock: Lock,
}

impl Agent {
    /// Loads key, registration and counter, and takes the state directory for itself.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn new(config: Config, world: World) -> Result<Self, RunError> {
        let World { timing, clock, .. } = world.clone();
        let state = StateDir::new(&config.state_dir);
        let registration = Registration::load(&state)?.ok_or(RunError::NotRegistered)?;
        same_node(&config, &registration)?;
        let key = load_registered(&config.key_path, &registration.public_key)?;
        state.create()?;
        let lock = Lock::take(&state)?.ok_or_else(|| RunError::Running {
            path: config.state_dir.display().to_string(),
        })?;
        let sequence = Sequence::open(&state.sequence(), registration.epoch, registration.last_sequence)?;
        let identity = super::identity::best(&config, &state, &registration);
        let known = read_known(&config.tls.ca_cert).unwrap_or_default();
        let tls = super::identity::tls(&known, &registration, identity.as_ref(), &clock)?;
        let client = Client::new(config.endpoints.clone(), tls, config.request_timeout)
            .dialing(world.dial.clone())
            .failing_back(timing.fail_back);
        let orders = Orders::open(&state, clock.seconds());
        let service = Service::open(&state);
        // What cannot be read is nothing.
        let before = Status::load(&state).ok().flatten().unwrap_or_default();
        let status = Status {
            work: before.work,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at: clock.seconds(),
            node_id: Some(registration.node_id.to_string()),
            cluster_id: Some(registration.cluster_id.to_string()),
            interval_seconds: config.sampling.base_interval.as_secs(),
            sequence: sequence.last(),
            heartbeat_timeout: Some(registration.params.heartbeat_timeout),
            drain: orders.journal.drain.clone(),
            orders: orders.shown(),
            service: service.out().cloned(),
            ..Status::default()
        };
        let running = Running::here();
        let trial = trial_until(&state, &running, timing.trial);
        let peers = Peers::new(
            Arc::clone(&key),
            registration.cluster_id.clone(),
            registration.node_id.clone(),
        );
        let sampled = config.sources();
        let word = LastWord::remembered(&state.slurm(), &config.slurm);
        let keeper = Keeper::default();
        keeper.goes_by(Places {
            config: config.clone(),
            state: state.clone(),
            registration: registration.clone(),
        });
        Ok(Self {
            sampler: (world.sampler)(&sampled)
                .with_attendant(keeper.attendant(&state, &config.sampling))
                // Until the batch system has answered, its drain goes on.
                .knowing(word.drained),
            keeper,
            adaptive: Adaptive::default(),
            task_files: TaskFiles::of(&config, status.work.clone()),
            disk: Disk::default(),
            tag: registration.tag(),
            interval: config.sampling.base_interval,
            backoff: Backoff::new(timing.backoff_first, timing.backoff_longest),
            unknown: 0,
            renew_backoff: Backoff::new(Duration::from_secs(30), Duration::from_secs(3600)),
            renew_not_before: instant(),
            section: SectionTracker::default(),
            outages: Outages::load(&state),
            out_of_turn: false,
            last_early: None,
            certificate_refused: false,
            issued_life: None,
            doubt: Doubt::default(),
            other_keys: None,
            anew: None,
            begins_anew: false,
            last_health: None,
            last_findings: Vec::new(),
            // Until the batch system has answered, what ran at the last look goes on running.
            last_jobs: remembered_jobs(&config.state_dir, clock.seconds()),
            slurm_cpus: word.cpus,
            last_running: None,
            gateway_measured: None,
            chain_measured: None,
            said: Said::default(),
            settings: Settings::new(&config.sampling),
            sampled,
            sources: None,
            reread: None,
            rereading: Rereading::default(),
            log: None,
            timer: (world.timer)(),
            board: Arc::default(),
            unshown: false,
            unjudged: true,
            leaves: false,
            config,
            timing,
            clock,
            world,
            key,
            state,
            registration,
            sequence,
            client,
            identity,
            known,
            status,
            hardware: Hardware::new(),
            held: Held::default(),
            peers,
            orders,
            service,
            wish: None,
            running,
            trial,
            lock,
        })
    }

    /// What SIGHUP does.
    pub fn on_reload(&mut self, reread: Reread, log: Option<LogHandle>) {
        self.reread = Some(reread);
        self.log = log;
    }

    /// Where the loop puts what it knows.
    pub fn show_on(&mut self, board: Arc<Board>) {
        self.board = board;
    }

    /// Says a lasting trouble once, until [`Agent::over`].
    pub(super) fn warn_once(&mut self, kind: &'static str, message: &str) {
        if self.said.begins(kind) {
            tracing::warn!("{message}");
        }
    }

    /// A lasting trouble is over: says so if it was said.
    pub(super) fn over(&mut self, kind: &'static str, message: &str) {
        if self.said.ends(kind) {
            tracing::info!("{message}");
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("registration", &self.registration)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// Until when this version must have proven itself; none if it has, or is the installed program.
fn trial_until(state: &StateDir, running: &Running, patience: Duration) -> Option<Instant> {
    let state = Versions::new(state.versions()).load().ok()?;
    let unproven = running.fetched
        && state
            .current
            .is_some_and(|c| c.version == running.version && !c.proven);
    if unproven {
        instant().checked_add(patience)
    } else {
        None
    }
}
