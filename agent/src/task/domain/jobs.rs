use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::task::Params;

use super::work::{self, Work};
use super::{Input, Out};
use crate::task::failure::Failure;
use crate::task::handler::Handler;
use crate::task::host::Host;
use crate::task::journal::{Shared, lock};
use crate::task::ledger::Ledger;
use crate::task::stop::Stop;

/// Tasks that wait for their turn at most.
const WAITING: usize = 64;
/// How long tasks under way may take to end when the agent stops.
const FAREWELL: Duration = Duration::from_secs(20);

/// Tasks that are not over.
pub(super) struct Jobs {
    ledger: Arc<Ledger>,
    tell: SyncSender<Input>,
    concurrency: usize,
    open: BTreeMap<TaskId, Job>,
    arrived: u64,
}

struct Job {
    journal: Shared,
    handler: &'static dyn Handler,
    params: Params,
    stop: Stop,
    /// Order of arrival; what was interrupted comes first.
    turn: (bool, u64),
    runs: bool,
    lease: Duration,
    told: Instant,
}

impl Jobs {
    pub(super) fn new(ledger: Arc<Ledger>, tell: SyncSender<Input>, concurrency: usize) -> Self {
        Self {
            ledger,
            tell,
            concurrency: concurrency.max(1),
            open: BTreeMap::new(),
            arrived: 0,
        }
    }

    /// Whether another one may wait.
    pub(super) fn room(&self) -> Result<(), Failure> {
        if self.open.len() < WAITING {
            return Ok(());
        }
        let what = format!("{WAITING} tasks wait on this node");
        Err(Failure::new(Code::ResourceBusy, what))
    }

    pub(super) fn add(
        &mut self,
        id: TaskId,
        journal: Shared,
        handler: &'static dyn Handler,
        params: Params,
        lease_seconds: u32,
        interrupted: bool,
    ) {
        self.arrived = self.arrived.saturating_add(1);
        let limit = Duration::from_secs(params.kind().time_limit_seconds());
        let job = Job {
            journal,
            handler,
            params,
            stop: Stop::after(limit),
            turn: (!interrupted, self.arrived),
            runs: false,
            lease: Duration::from_secs(u64::from(lease_seconds.clamp(3, 3600))),
            told: Instant::now(),
        };
        self.open.insert(id, job);
    }

    /// Starts what can be started: in order, one an owner, not more than there is room for.
    pub(super) fn start(&mut self, host: &Arc<Host>, out: &Out) {
        let mut waiting: Vec<_> = self.open.iter().filter(|(_, j)| !j.runs).collect();
        waiting.sort_by_key(|(_, j)| j.turn);
        let waiting: Vec<TaskId> = waiting.into_iter().map(|(id, _)| id.clone()).collect();
        for id in waiting {
            let running = self.open.values().filter(|j| j.runs).count();
            let Some(job) = self.open.get_mut(&id).filter(|_| running < self.concurrency) else {
                return;
            };
            let owner = lock(&job.journal).story().owner.clone();
            let owner = match owner {
                Some(owner) => match self.ledger.lock_owner(&owner) {
                    Some(held) => Some(held),
                    None => continue,
                },
                None => None,
            };
            // The time of waiting does not count.
            let limit = Duration::from_secs(job.params.kind().time_limit_seconds());
            job.stop = job.stop.renewed(limit);
            let work = Work {
                id: id.clone(),
                host: Arc::clone(host),
                ledger: Arc::clone(&self.ledger),
                journal: Arc::clone(&job.journal),
                handler: job.handler,
                params: job.params.clone(),
                stop: job.stop.clone(),
                out: Arc::clone(out),
                tell: self.tell.clone(),
                owner,
            };
            match work::start(work) {
                Ok(()) => {
                    job.runs = true;
                    job.told = Instant::now();
                }
                // Out of threads: the next look may have one.
                Err(e) => return tracing::error!(task = %id, "a task cannot be started: {e}"),
            }
        }
    }

    /// A task's thread has ended.
    pub(super) fn ended(&mut self, id: &TaskId) {
        self.open.remove(id);
    }

    pub(super) fn cancel(&self, id: &TaskId) {
        if let Some(job) = self.open.get(id) {
            job.stop.cancel();
        }
    }

    /// A task that is under way was delivered again: the gateway's word of it was lost.
    pub(super) fn said_again(&mut self, id: &TaskId, out: &Out) {
        if let Some(job) = self.open.get_mut(id) {
            job.told = Instant::now();
            work::tell(&job.journal, out, job.runs);
        }
    }

    /// Says of each task that it is under way before the gateway gives it up.
    pub(super) fn keep_alive(&mut self, out: &Out) {
        for job in self.open.values_mut() {
            if job.told.elapsed() >= job.lease / 3 {
                job.told = Instant::now();
                work::tell(&job.journal, out, job.runs);
            }
        }
    }

    /// Lets tasks under way end.
    pub(super) fn wait(&mut self, told: &Receiver<Input>) {
        let begun = Instant::now();
        while self.open.values().any(|j| j.runs) && begun.elapsed() < FAREWELL {
            match told.recv_timeout(Duration::from_millis(100)) {
                Ok(Input::Worked(id)) => self.ended(&id),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
