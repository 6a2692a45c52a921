//! Supervises the collectors: single flight, deadline, staleness.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::worker::{Done, Job, Outbox, Worker};
use super::{Category, Collector, Figures, Reading};
use crate::clock::instant;

/// A collector that takes longer may be slow or stuck; either way the others do not wait for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs collectors and keeps what they read.
pub struct Sampler {
    slots: Vec<Slot>,
    worker: Option<Worker>,
    outbox: Arc<Outbox>,
    figures: Figures,
    /// Collectors run where they are called: in simulated time no thread answers.
    inline: bool,
}

struct Slot {
    name: &'static str,
    category: Category,
    deadline: Duration,
    /// Absent while it runs: single flight.
    collector: Option<Box<dyn Collector>>,
    /// When it was handed to a worker, while it runs.
    since: Option<Instant>,
    /// Left behind with its thread, so that others need not wait.
    left: bool,
    /// Its deadline has passed, and it was said.
    said: bool,
    last: Option<Instant>,
    /// Measures nothing: it runs with all others, and when it is told to.
    attends: bool,
}

impl Slot {
    fn new(collector: Box<dyn Collector>) -> Self {
        Self {
            name: collector.name(),
            category: collector.category(),
            deadline: collector.deadline(),
            collector: Some(collector),
            since: None,
            left: false,
            said: false,
            last: None,
            attends: false,
        }
    }

    /// Handed over, if it is there.
    fn hand_over(&mut self, index: usize, now: Instant) -> Option<Job> {
        self.last = Some(now);
        let collector = self.collector.take()?;
        self.since = Some(now);
        Some(Job { index, collector })
    }

    /// After this the others get another thread.
    fn patience(&self) -> Duration {
        self.deadline.min(PATIENCE)
    }

    fn is_stuck(&self, now: Instant) -> bool {
        self.left
            && self
                .since
                .is_some_and(|since| now.saturating_duration_since(since) >= self.deadline)
    }
}

/// A collector that does not come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// Its name.
    pub name: &'static str,
    /// Since when it runs.
    pub since: Instant,
}

impl Sampler {
    /// Nothing runs before the first [`Sampler::sample`].
    #[must_use]
    pub fn new(collectors: Vec<Box<dyn Collector>>) -> Self {
        let slots = collectors.into_iter().map(Slot::new).collect();
        Self {
            slots,
            worker: None,
            outbox: Arc::default(),
            figures: Figures::default(),
            inline: false,
        }
    }

    /// The same without a thread: for simulated time, with collectors that do not hang.
    #[must_use]
    pub fn inline(collectors: Vec<Box<dyn Collector>>) -> Self {
        Self {
            inline: true,
            ..Self::new(collectors)
        }
    }

    /// Another one that reads no figures: it runs after the others of each round, and with [`Sampler::attend`].
    #[must_use]
    pub fn with_attendant(mut self, attendant: Box<dyn Collector>) -> Self {
        let slot = Slot {
            attends: true,
            ..Slot::new(attendant)
        };
        self.slots.push(slot);
        self
    }

    /// Has the attendant run, without waiting for it.
    pub fn attend(&mut self) {
        self.gather();
        self.leave_behind(instant());
        let now = instant();
        let slots = self.slots.iter_mut().enumerate().filter(|(_, s)| s.attends);
        let jobs: Vec<Job> = slots.filter_map(|(i, s)| s.hand_over(i, now)).collect();
        self.dispatch(jobs);
    }

    /// Whether the attendant has come back from its last run.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.slots.iter().filter(|s| s.attends).all(|s| s.since.is_none())
    }

    /// Whether the attendant is late: it may hang. One that waits its turn behind slow collectors is not.
    #[must_use]
    pub fn is_unattended(&self) -> bool {
        let now = instant();
        let running = self.worker.as_ref().and_then(Worker::running);
        let late = |at: Instant| now.saturating_duration_since(at) >= PATIENCE;
        let mut attendants = self.slots.iter().enumerate();
        attendants.any(|(i, s)| {
            let runs_late = running.is_some_and(|(r, at)| r == i && late(at));
            s.attends && s.since.is_some() && (s.left || runs_late)
        })
    }

    /// Waits for the attendant, at most for `limit`; whether it has come back.
    pub async fn attended(&mut self, limit: Duration) -> bool {
        let end = instant().checked_add(limit).unwrap_or_else(instant);
        while !self.is_attended() && instant() < end {
            let outbox = Arc::clone(&self.outbox);
            tokio::time::timeout_at(end.into(), outbox.news.notified())
                .await
                .ok();
            self.gather();
        }
        self.is_attended()
    }

    /// What is known.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Puts down what was measured elsewhere.
    pub fn put(&mut self, reading: Reading, taken: Instant) {
        reading.apply(&mut self.figures, taken);
    }

    /// When figures of `category` were last asked for; none if never. A collector that is stuck was asked too.
    #[must_use]
    pub fn last(&self, category: Category) -> Option<Instant> {
        self.slots
            .iter()
            .filter(|s| s.category == category && !s.attends)
            .map(|s| s.last)
            .min()
            .flatten()
    }

    /// Every category that has a collector, with its last measurement.
    pub fn categories(&self) -> impl Iterator<Item = (Category, Option<Instant>)> {
        let measured = |c: &Category| self.slots.iter().any(|s| s.category == *c && !s.attends);
        Category::ALL
            .into_iter()
            .filter(measured)
            .map(|c| (c, self.last(c)))
    }

    /// Collectors that are left behind.
    #[must_use]
    pub fn stuck(&self) -> Vec<Stuck> {
        let now = instant();
        self.slots
            .iter()
            .filter(|s| s.is_stuck(now))
            .filter_map(|s| {
                Some(Stuck {
                    name: s.name,
                    since: s.since?,
                })
            })
            .collect()
    }

    /// Takes over what came back since the last call; no waiting.
    pub fn gather(&mut self) {
        for done in self.outbox.take() {
            self.finish(done);
        }
        let now = instant();
        for slot in self.slots.iter_mut().filter(|s| !s.said && s.is_stuck(now)) {
            slot.said = true;
            tracing::warn!(
                collector = slot.name,
                "has not answered within {:?}; its figures will be absent until it does",
                slot.deadline
            );
        }
    }

    /// Measures the categories that `wanted` names; comes back when all is read, or after `budget` at the latest.
    /// What is slower than that comes in later.
    pub async fn sample(&mut self, wanted: impl Fn(Category) -> bool, budget: Duration) {
        self.gather();
        let now = instant();
        if !self.slots.iter().any(|s| !s.attends && wanted(s.category)) {
            return;
        }
        let slots = self.slots.iter_mut().enumerate();
        let jobs: Vec<Job> = slots
            .filter(|(_, s)| s.attends || wanted(s.category))
            .filter_map(|(i, s)| s.hand_over(i, now))
            .collect();
        let waiting: Vec<usize> = jobs.iter().map(|j| j.index).collect();
        self.dispatch(jobs);
        let end = now.checked_add(budget).unwrap_or(now);
        while waiting
            .iter()
            .any(|i| self.slots.get(*i).is_some_and(|s| s.since.is_some() && !s.left))
        {
            let now = instant();
            if now >= end {
                break;
            }
            let until = self.next_deadline(now).min(end);
            let outbox = Arc::clone(&self.outbox);
            // An early or late wake-up is the same to us: what counts is what came back.
            tokio::time::timeout_at(until.into(), outbox.news.notified())
                .await
                .ok();
            self.gather();
            self.leave_behind(instant());
        }
    }

    fn dispatch(&mut self, jobs: impl IntoIterator<Item = Job>) {
        let mut jobs = jobs.into_iter().peekable();
        if self.inline {
            for mut job in jobs {
                let started = instant();
                let readings = job.collector.collect(started);
                self.finish(Done {
                    job,
                    readings,
                    started,
                    finished: started,
                });
            }
            return;
        }
        if jobs.peek().is_none() {
            return;
        }
        if self.worker.is_none() {
            match Worker::start(Arc::clone(&self.outbox)) {
                Ok(worker) => self.worker = Some(worker),
                Err(e) => tracing::error!("no thread for collectors, figures go stale: {e}"),
            }
        }
        match &self.worker {
            Some(worker) => worker.push(jobs),
            // Back to their places; the next round tries again.
            None => jobs.for_each(|job| self.put_back(job)),
        }
    }

    fn put_back(&mut self, job: Job) {
        if let Some(slot) = self.slots.get_mut(job.index) {
            slot.since = None;
            slot.collector = Some(job.collector);
        }
    }

    fn next_deadline(&self, now: Instant) -> Instant {
        let running = self.worker.as_ref().and_then(Worker::running);
        let deadline = running.and_then(|(i, since)| since.checked_add(self.slots.get(i)?.patience()));
        let waiting = self.slots.iter().filter(|s| s.since.is_some() && !s.left);
        // The thread is about to begin one of them: whichever it is, it has its time from now on.
        let soonest = || now.checked_add(waiting.map(Slot::patience).min()?);
        deadline
            .or_else(soonest)
            .unwrap_or(now)
            .max(now.checked_add(Duration::from_millis(20)).unwrap_or(now))
    }

    fn leave_behind(&mut self, now: Instant) {
        let Some((index, since)) = self.worker.as_ref().and_then(Worker::running) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if now.saturating_duration_since(since) < slot.patience() {
            return;
        }
        slot.left = true;
        if let Some(worker) = self.worker.take() {
            let rest = worker.abandon();
            self.dispatch(rest);
        }
    }

    fn finish(&mut self, done: Done) {
        let Done {
            job,
            readings,
            started,
            finished,
        } = done;
        for reading in readings {
            // Stamped with the start: what a slow driver says may be as old as the question.
            reading.apply(&mut self.figures, started);
        }
        if let Some(slot) = self.slots.get_mut(job.index) {
            if std::mem::take(&mut slot.said) {
                let took = finished.saturating_duration_since(started);
                tracing::info!(collector = slot.name, "answers again after {took:?}");
            }
            slot.left = false;
        }
        self.put_back(job);
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field(
                "collectors",
                &self.slots.iter().map(|s| s.name).collect::<Vec<_>>(),
            )
            .field("stuck", &self.stuck())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::sample::Reading;

    struct Quick(u64);
    impl Collector for Quick {
        fn name(&self) -> &'static str {
            "quick"
        }
        fn category(&self) -> Category {
            Category::HealthStatus
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            self.0 += 1;
            vec![Reading::Uptime(Some(self.0))]
        }
    }

    /// Hangs until it is let go, as a dead file server does.
    struct Hung(mpsc::Receiver<()>, Category);
    impl Collector for Hung {
        fn name(&self) -> &'static str {
            "hung"
        }
        fn category(&self) -> Category {
            self.1
        }
        fn deadline(&self) -> Duration {
            Duration::from_secs(2)
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            self.0.recv().ok();
            vec![Reading::Temperature(Some(40))]
        }
    }

    #[tokio::test]
    async fn a_hung_collector_delays_others_once_by_its_deadline_and_is_never_started_twice() {
        let (free, hung) = mpsc::channel();
        let (_free2, hung2) = mpsc::channel();
        let mut s = Sampler::new(vec![
            Box::new(Hung(hung, Category::Temperature)),
            Box::new(Hung(hung2, Category::Temperature)),
            Box::new(Quick(0)),
        ]);
        let start = Instant::now();
        s.sample(|_| true, Duration::from_secs(60)).await;
        // Two would be four seconds.
        assert!(
            start.elapsed() < Duration::from_millis(3900),
            "{:?}",
            start.elapsed()
        );
        let now = Instant::now();
        assert_eq!(s.figures().uptime.fresh(now), Some(&1));
        assert_eq!(s.figures().temperature.fresh(now), None);
        assert_eq!(s.stuck().len(), 2);
        // They are left alone: nothing waits for them any more.
        let start = Instant::now();
        s.sample(|_| true, Duration::from_secs(60)).await;
        assert!(
            start.elapsed() < Duration::from_millis(1900),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(s.figures().uptime.fresh(Instant::now()), Some(&2));
        // What comes back is taken, with the age that it has, and may run again.
        free.send(()).unwrap();
        let mut patience = 200;
        while s.stuck().len() == 2 && patience > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            s.gather();
            patience -= 1;
        }
        assert_eq!(s.stuck().len(), 1);
        assert_eq!(s.figures().temperature.fresh(Instant::now()), Some(&40));
        assert!(s.figures().temperature.age(Instant::now()).unwrap() >= Duration::from_secs(2));
    }

    /// What is gathered once it is there.
    async fn late(s: &mut Sampler) -> Option<i32> {
        for _ in 0..1000 {
            s.gather();
            if let Some(degrees) = s.figures().temperature.fresh(Instant::now()) {
                return Some(*degrees);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    /// Takes its time, within its deadline, as a program does that asks a distant server.
    struct Slow;
    impl Collector for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        fn category(&self) -> Category {
            Category::JobCounts
        }
        fn deadline(&self) -> Duration {
            Duration::from_secs(30)
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            std::thread::sleep(Duration::from_millis(2500));
            vec![Reading::Temperature(Some(41))]
        }
    }

    #[tokio::test]
    async fn a_slow_collector_neither_holds_up_the_others_nor_counts_as_stuck() {
        let mut s = Sampler::new(vec![Box::new(Slow), Box::new(Quick(0))]);
        s.sample(|_| true, Duration::from_millis(1300)).await;
        let now = Instant::now();
        assert_eq!(
            (s.figures().uptime.fresh(now), s.figures().temperature.fresh(now)),
            (Some(&1), None)
        );
        assert!(s.stuck().is_empty());
        assert_eq!(late(&mut s).await, Some(41));
        s.sample(|_| true, Duration::from_millis(1300)).await;
        assert_eq!(s.figures().uptime.fresh(Instant::now()), Some(&2));
    }

    #[tokio::test]
    async fn the_budget_ends_the_wait_and_what_is_slower_comes_in_later() {
        let (free, slow) = mpsc::channel();
        let mut s = Sampler::new(vec![Box::new(Hung(slow, Category::Temperature))]);
        let start = Instant::now();
        s.sample(|_| true, Duration::from_millis(10)).await;
        assert!(
            start.elapsed() < Duration::from_millis(1900),
            "{:?}",
            start.elapsed()
        );
        assert!(s.stuck().is_empty());
        free.send(()).unwrap();
        s.sample(|_| false, Duration::ZERO).await;
        assert_eq!(late(&mut s).await, Some(40));
    }

    #[tokio::test]
    async fn only_what_is_wanted_is_measured() {
        let mut s = Sampler::new(vec![Box::new(Quick(0))]);
        s.sample(|c| c == Category::Gpu, Duration::from_secs(1)).await;
        assert_eq!(s.last(Category::HealthStatus), None);
        s.sample(|c| c == Category::HealthStatus, Duration::from_secs(1))
            .await;
        assert!(s.last(Category::HealthStatus).is_some());
    }
}
