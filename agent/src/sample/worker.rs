//! The thread that runs collectors one after the other. When one hangs, the thread is left behind with it and another
//! takes over the rest; there are never more threads than collectors.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Collector, Reading};

/// Enough for any collector; the default of 2 MiB would count against a small process.
const STACK: usize = 256 << 10;

/// A collector on its way, with its place among all.
pub(super) struct Job {
    pub(super) index: usize,
    pub(super) collector: Box<dyn Collector>,
    /// It reads no figures: the loop is not woken for it, unless it has something to say.
    pub(super) attends: bool,
}

/// A collector that came back.
pub(super) struct Done {
    pub(super) job: Job,
    pub(super) readings: Vec<Reading>,
    pub(super) started: Instant,
    pub(super) finished: Instant,
}

/// Where workers, present and left behind, put what they have done.
#[derive(Default)]
pub(super) struct Outbox {
    done: Mutex<AllDone>,
    /// A round is read.
    rounds: Notify,
    /// Somebody has come back with nothing to say.
    others: Notify,
}

#[derive(Default)]
struct AllDone {
    all: Vec<Done>,
    /// The last of a round is among them.
    round: bool,
}

impl Outbox {
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut *lock(&self.done)).all
    }

    /// Waits until somebody comes back, or has since the last call.
    pub(super) async fn anybody(&self) {
        tokio::select! {
            () = self.rounds.notified() => {}
            () = self.others.notified() => {}
        }
    }

    /// Waits until a round lies here.
    pub(super) async fn round_read(&self) {
        while !lock(&self.done).round {
            self.rounds.notified().await;
        }
    }
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Job>,
    /// Behind all that waits, and not before then.
    planned: Option<(Instant, VecDeque<Job>)>,
    running: Option<(usize, Instant)>,
    /// Something was read since the last word of it.
    news: bool,
    closed: bool,
}

/// One thread and its queue.
pub(super) struct Worker {
    shared: Arc<(Mutex<Inbox>, Condvar)>,
}

impl Worker {
    /// Starts a thread.
    pub(super) fn start(outbox: Arc<Outbox>) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(Inbox::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("collector".into())
            .stack_size(STACK)
            .spawn(move || work(&theirs, &outbox))?;
        Ok(Self { shared })
    }

    /// Adds jobs behind those that wait.
    pub(super) fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        lock(&self.shared.0).queue.extend(jobs);
        self.shared.1.notify_one();
    }

    /// The same, and later others that begin by themselves: with one wake-up for both.
    pub(super) fn plan(&self, jobs: impl IntoIterator<Item = Job>, at: Instant, later: VecDeque<Job>) {
        let mut inbox = lock(&self.shared.0);
        inbox.queue.extend(jobs);
        inbox.planned = Some((at, later)).filter(|(_, later)| !later.is_empty());
        let idle = inbox.queue.is_empty() && inbox.planned.is_none();
        drop(inbox);
        if !idle {
            self.shared.1.notify_one();
        }
    }

    /// Gives back what was planned and has not begun.
    pub(super) fn recall(&self) -> VecDeque<Job> {
        let planned = lock(&self.shared.0).planned.take();
        planned.map(|(_, jobs)| jobs).unwrap_or_default()
    }

    /// What runs now, and since when.
    pub(super) fn running(&self) -> Option<(usize, Instant)> {
        lock(&self.shared.0).running
    }

    /// Leaves the thread behind with what it runs; gives back what still waits.
    pub(super) fn abandon(self) -> VecDeque<Job> {
        std::mem::take(&mut lock(&self.shared.0).queue)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        lock(&self.shared.0).closed = true;
        self.shared.1.notify_one();
    }
}

fn work(shared: &(Mutex<Inbox>, Condvar), outbox: &Outbox) {
    while let Some(mut job) = next(shared) {
        let started = Instant::now();
        let readings = job.collector.collect(started);
        let news = !job.attends || !readings.is_empty();
        lock(&outbox.done).all.push(Done {
            job,
            readings,
            started,
            finished: Instant::now(),
        });
        let mut inbox = lock(&shared.0);
        inbox.running = None;
        inbox.news |= news;
        // One wake-up for all that was asked for.
        if !inbox.queue.is_empty() {
            continue;
        }
        if std::mem::take(&mut inbox.news) {
            lock(&outbox.done).round = true;
            outbox.rounds.notify_one();
        } else {
            outbox.others.notify_one();
        }
    }
}

fn next(shared: &(Mutex<Inbox>, Condvar)) -> Option<Job> {
    let mut inbox = lock(&shared.0);
    loop {
        if inbox.closed {
            return None;
        }
        if let Some(job) = inbox.queue.pop_front() {
            inbox.running = Some((job.index, Instant::now()));
            return Some(job);
        }
        let left = inbox
            .planned
            .as_ref()
            .map(|(at, _)| at.saturating_duration_since(Instant::now()));
        inbox = match left {
            Some(Duration::ZERO) => {
                let planned = inbox.planned.take();
                inbox.queue.extend(planned.into_iter().flat_map(|(_, jobs)| jobs));
                inbox
            }
            Some(left) => {
                let waited = shared.1.wait_timeout(inbox, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.1.wait(inbox).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// A panic under the lock is impossible here (no code of others runs under it), so poison carries no news.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
