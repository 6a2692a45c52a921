//! The part of the task domain that acts: it takes tasks that are signed for this node, carries each out once over all
//! restarts, and says how it ended. It knows nothing of the network.

mod deliver;
mod jobs;
mod publish;
mod say;
mod work;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hpc_schema::id::TaskId;
use hpc_schema::task::{Cancellation, Delivered, KeyRotation, ProgressRequest, TaskResult};
use serde::{Deserialize, Serialize};

use super::authority::Authority;
use super::failure::Failure;
use super::host::Host;
use super::journal::{Record, lock};
use super::ledger::Ledger;
use super::refusals::Refusals;
use super::steward::Steward;
use super::verify::Handlers;
use jobs::Jobs;
#[cfg(test)]
pub(in crate::task) use publish::running;
pub use publish::{Held, Holdings, Running};

/// Words that wait to be read.
const QUEUE: usize = 256;
/// How often results are said again of which the gateway has not heard.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// How often it looks around when nothing happens.
const TICK: Duration = Duration::from_millis(500);

/// What the domain is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The gateway can be reached (again): all that it has not heard is to be said.
    Hello,
    /// A task.
    Deliver(Box<Delivered>),
    /// A task that is taken back.
    Cancel(Cancellation),
    /// Rotations of the task key.
    Keys {
        /// Oldest first.
        steps: Vec<KeyRotation>,
    },
    /// The gateway has a task's result on record.
    Heard {
        /// Which.
        task_id: TaskId,
    },
    /// A task's thread has ended.
    #[serde(skip)]
    Worked(TaskId),
    /// To stop.
    #[serde(skip)]
    Stop,
}

/// What the domain says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// How far a task is.
    Progress {
        /// Which.
        task_id: TaskId,
        /// What the gateway is told.
        progress: ProgressRequest,
    },
    /// How a task ended; said again with each hello until it was heard.
    Result {
        /// Which.
        task_id: TaskId,
        /// What the gateway is told.
        result: Box<TaskResult>,
    },
}

/// Signs results with the agent's key.
pub trait Sign: Send + Sync {
    /// Ed25519 over `message`.
    ///
    /// # Errors
    /// In words.
    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String>;
}

/// Where words of the domain go.
pub type Out = Arc<dyn Fn(Output) + Send + Sync>;

/// What a domain is made of.
pub struct Setup {
    /// The machine.
    pub host: Host,
    /// Whose tasks count.
    pub authority: Authority,
    /// Signs results.
    pub sign: Arc<dyn Sign>,
    /// What can be asked for.
    pub handlers: Handlers,
    /// Who looks after what stays.
    pub stewards: Vec<Box<dyn Steward>>,
    /// Tasks at one time.
    pub concurrency: usize,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// A domain that runs.
#[derive(Debug)]
pub struct Domain {
    tell: SyncSender<Input>,
    thread: JoinHandle<()>,
    ledger: Arc<Ledger>,
}

impl Domain {
    /// Reads the journals, takes up what was interrupted, and waits for tasks.
    ///
    /// # Errors
    /// IO.
    pub fn start(mut setup: Setup, out: Out) -> Result<Self, Failure> {
        let whose = (&setup.authority.cluster_id, &setup.authority.node_id);
        setup.host.dir = setup.host.dir.of(whose.0, whose.1);
        setup.host.dir.create()?;
        let ledger = Ledger::open(setup.host.dir.journal())?;
        let refusals = Refusals::open(&setup.host.dir.refusals(), setup.host.clock.seconds())?;
        let (tell, told) = sync_channel(QUEUE);
        let mut state = State {
            jobs: Jobs::new(Arc::clone(&ledger), tell.clone(), setup.concurrency),
            host: Arc::new(setup.host),
            authority: setup.authority,
            sign: setup.sign,
            handlers: setup.handlers,
            ledger: Arc::clone(&ledger),
            out,
            refusals,
            published: None,
            said: Instant::now(),
        };
        state.take_up();
        // At once: a lease does not wait until what was interrupted is undone. Whoever is worked for is left alone.
        for steward in setup.stewards {
            super::steward::start(steward, Arc::clone(&state.host), &ledger);
        }
        let thread = std::thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || state.serve(&told))
            .map_err(Failure::failed)?;
        Ok(Self { tell, thread, ledger })
    }

    /// Tells it something; false if it has ended. Waits while too much is told.
    #[must_use]
    pub fn tell(&self, input: Input) -> bool {
        self.tell.send(input).is_ok()
    }

    /// A way to tell it from elsewhere.
    #[must_use]
    pub fn teller(&self) -> SyncSender<Input> {
        self.tell.clone()
    }

    /// Every task that it knows.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Whether it has ended by itself.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops it: tasks under way have a while to end, and are taken up again at the next start if they do not.
    pub fn stop(self) {
        // Over already: as good as stopped.
        self.tell.send(Input::Stop).ok();
        self.thread.join().ok();
    }
}

struct State {
    host: Arc<Host>,
    authority: Authority,
    sign: Arc<dyn Sign>,
    handlers: Handlers,
    ledger: Arc<Ledger>,
    jobs: Jobs,
    out: Out,
    refusals: Refusals,
    /// What was last written for others.
    published: Option<Vec<u8>>,
    /// When all that was not heard was last said.
    said: Instant,
}

impl State {
    fn serve(&mut self, told: &Receiver<Input>) {
        loop {
            self.jobs.start(&self.host, &self.out);
            self.jobs.keep_alive(&self.out);
            self.publish();
            match told.recv_timeout(TICK) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.jobs.wait(told);
                    self.publish();
                    return;
                }
                Ok(input) => self.told(input),
                Err(RecvTimeoutError::Timeout) => {
                    if self.said.elapsed() >= SAY_AGAIN {
                        self.say_all();
                    }
                    self.ledger.forget(self.host.clock.seconds());
                }
            }
        }
    }

    fn told(&mut self, input: Input) {
        match input {
            Input::Hello => self.say_all(),
            Input::Deliver(delivered) => self.deliver(*delivered),
            Input::Cancel(cancellation) => self.cancel(&cancellation),
            Input::Keys { steps } => match self.authority.rotate(&steps) {
                Ok(true) => {
                    tracing::info!("the cluster's task key was rotated");
                    if let Err(e) = self.authority.save(&self.host.dir) {
                        tracing::error!("the new task key cannot be kept: {e}");
                    }
                }
                Ok(false) => {}
                Err(e) => tracing::warn!("a rotation of the task key is refused: {e}"),
            },
            Input::Heard { task_id } => {
                if let Some(journal) = self.ledger.find(&task_id) {
                    let mut journal = lock(&journal);
                    if journal.story().ended.is_some()
                        && !journal.story().heard
                        && let Err(e) = journal.add(Record::Heard)
                    {
                        tracing::warn!("{e}");
                    }
                }
            }
            Input::Worked(id) => {
                self.jobs.ended(&id);
                self.say(&id);
            }
            Input::Stop => {}
        }
    }

    /// Takes up what was interrupted.
    fn take_up(&mut self) {
        for journal in self.ledger.all() {
            let (id, task, over) = {
                let journal = lock(&journal);
                let story = journal.story();
                (
                    story.task.task_id.clone(),
                    story.task.clone(),
                    story.ended.is_some(),
                )
            };
            if over {
                continue;
            }
            let kind = task.task_type.parse().ok();
            let handler = kind.and_then(self.handlers);
            let params = kind.and_then(|k| hpc_schema::task::Params::parse(k, &task.params).ok());
            match (handler, params) {
                (Some(handler), Some(params)) => self.jobs.add(id, journal, handler, params, 30, true),
                // Another version of the agent took it.
                _ => {
                    tracing::error!(task = %id, "an interrupted task is of a type that this version does not know");
                }
            }
        }
    }
}
