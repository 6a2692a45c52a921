use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
#[cfg(test)]
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::accept::{Accept, Accepted, accept};
use super::apply::{Backlog, Handover};
use super::gone::{Forgotten, Gone};
use super::group::{Made, Queued, Reply, group, tell, turn_away};
use super::log::Log;
use super::mend::mend;
use super::together::accept_all;
use crate::fault;
use crate::settle::Wake;
use crate::store::{Store, StoreError};

/// Reports that may wait for the writer; more get `503` and come again.
const QUEUE: usize = 4096;

/// Where admission puts reports. Cheap to clone; the writer ends when the last clone is gone.
#[derive(Debug, Clone)]
pub struct Spool {
    tx: mpsc::Sender<Queued>,
    /// What the database has not taken in from the journal yet.
    handover: Arc<Handover>,
    /// For the journal's writer; none: there is no journal.
    forgotten: Option<Forgotten>,
}

impl Spool {
    /// Starts the writer: into the journal where there is one, else into the database itself. The task ends when all that
    /// was accepted is in the database. `wake` hears of what is.
    #[must_use]
    pub fn start(store: Store, log: Option<Log>, wake: Arc<Wake>) -> (Self, JoinHandle<()>) {
        let (tx, rx) = mpsc::channel(QUEUE);
        let handover = Arc::new(Handover::default());
        let forgotten = log.as_ref().map(Log::forgotten);
        let task = match log {
            Some(log) => tokio::spawn(log.write(store, rx, wake, Arc::clone(&handover))),
            None => tokio::spawn(write(store, rx, wake, Arc::clone(&handover))),
        };
        let spool = Self {
            tx,
            handover,
            forgotten,
        };
        (spool, task)
    }

    /// Of these nodes the store has forgotten what was accepted, and so does memory.
    pub fn forget(&self, gone: Vec<Gone>) {
        if let Some(forgotten) = &self.forgotten {
            forgotten.add(gone);
        }
    }

    /// Stores a report; `reply` comes once it is durable, or says that the queue is full or the store fails: then it is not
    /// accepted.
    pub(crate) fn put(&self, report: Made, reply: Reply) {
        let ((_, reply), why) = match self.tx.try_send((report, reply)) {
            Ok(()) => return,
            Err(TrySendError::Full(back)) => (back, StoreError::Busy),
            Err(TrySendError::Closed(back)) => (back, StoreError::Stopped),
        };
        reply.hears(Err(why));
    }

    /// The same, waited for.
    #[cfg(test)]
    pub(crate) async fn accept(&self, report: Accept) -> Result<Accepted, StoreError> {
        let (tx, rx) = oneshot::channel();
        self.put(Box::new(report), Box::new(tx));
        rx.await.map_err(|_| StoreError::Stopped)?
    }

    /// For how long the database has not taken in what the journal holds.
    #[must_use]
    pub fn behind(&self) -> Duration {
        self.handover.behind()
    }

    /// The last row of a node that could not be read and was written anew, for a day.
    #[must_use]
    pub fn mended(&self) -> Option<String> {
        self.handover.last_mended()
    }

    /// Tells how far it is behind to who must not keep the writer from ending.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog::of(&self.handover)
    }

    /// Reports that wait for the writer, in thousandths of its queue.
    #[must_use]
    pub fn load_permille(&self) -> usize {
        (QUEUE - self.tx.capacity().min(QUEUE)) * 1000 / QUEUE
    }
}

async fn write(store: Store, mut rx: mpsc::Receiver<Queued>, wake: Arc<Wake>, handover: Arc<Handover>) {
    while let Some((reports, replies)) = group(&mut rx).await {
        match commit_mended(&store, &reports, &handover).await {
            Ok(answers) => {
                fault::point("spool.committed");
                wake.reports(answers.iter().filter(|a| a.accepted).count());
                tell(replies, answers);
            }
            Err(e) => turn_away(replies, &e),
        }
    }
}

/// Like [`commit`]; what cannot be read of one node is written anew, and keeps nobody else's out.
async fn commit_mended(
    store: &Store,
    reports: &[Made],
    handover: &Handover,
) -> Result<Vec<Accepted>, StoreError> {
    let done = commit(store, reports).await;
    if !done.as_ref().is_err_and(StoreError::is_unreadable) {
        return done;
    }
    let Some(what) = mend(store, reports.iter().map(|r| &**r), false).await? else {
        return done;
    };
    handover.mended(what);
    commit(store, reports).await
}

pub(super) async fn commit<A>(store: &Store, reports: &[A]) -> Result<Vec<Accepted>, StoreError>
where
    A: Borrow<Accept> + Sync,
{
    let all: Vec<&Accept> = reports.iter().map(A::borrow).collect();
    if let Some((tx, answers)) = accept_all(store, &all).await? {
        fault::point("spool.written");
        fault::point("spool.applying");
        tx.commit().await?;
        fault::point("spool.applied");
        return Ok(answers);
    }
    let mut tx = store.begin().await?;
    let mut answers = Vec::with_capacity(all.len());
    for report in all {
        answers.push(accept(&mut tx, report).await?);
    }
    fault::point("spool.written");
    fault::point("spool.applying");
    tx.commit().await?;
    fault::point("spool.applied");
    Ok(answers)
}
