//! The thread that runs collectors one after the other. When one hangs, the thread is left behind with it and another
//! takes over the rest; there are never more threads than collectors.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::{Collector, Reading};

/// Enough for any collector; the default of 2 MiB would count against a small process.
const STACK: usize = 256 << 10;

/// A collector on its way, with its place among all.
pub(super) struct Job {
    pub(super) index: usize,
    pub(super) collector: Box<dyn Collector>,
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
    done: Mutex<Vec<Done>>,
    pub(super) news: Notify,
}

impl Outbox {
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut *lock(&self.done))
    }
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Job>,
    running: Option<(usize, Instant)>,
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
        lock(&outbox.done).push(Done {
            job,
            readings,
            started,
            finished: Instant::now(),
        });
        let mut inbox = lock(&shared.0);
        inbox.running = None;
        // One wake-up for all that was asked for.
        if inbox.queue.is_empty() {
            outbox.news.notify_one();
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
        inbox = shared.1.wait(inbox).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A panic under the lock is impossible here (no code of others runs under it), so poison carries no news.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
