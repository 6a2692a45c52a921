//! Supervises the collectors: single flight, deadline, staleness.

mod attend;
mod carry;
mod plan;
mod slot;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slot::{Planned, Slot};

use super::worker::{Done, Job, Outbox, Worker};
use super::{Category, Collector, Figures, Reading};
use crate::clock::instant;

/// Runs collectors and keeps what they read.
pub struct Sampler {
    slots: Vec<Slot>,
    worker: Option<Worker>,
    outbox: Arc<Outbox>,
    figures: Figures,
    /// The attendant is to run with whoever is asked next.
    soon: bool,
    /// When the next round begins by itself, and who should be asked then; none once it is known to have begun.
    planned: Option<(Instant, Vec<usize>)>,
    /// What was read as planned, and not taken yet.
    read: Vec<Category>,
    /// Collectors run where they are called: in simulated time no thread answers.
    inline: bool,
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
            soon: false,
            planned: None,
            read: Vec::new(),
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
        let now = instant();
        for done in self.outbox.take() {
            if self
                .slots
                .get(done.job.index)
                .is_some_and(|s| s.planned == Planned::Waits)
            {
                self.begun(now);
            }
            self.finish(done);
        }
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
    /// What is slower than that comes in later. What was planned and has begun is waited for, and not measured again.
    pub async fn sample(&mut self, wanted: impl Fn(Category) -> bool, budget: Duration) {
        let planned = self.planned.as_ref().map(|(at, _)| *at);
        self.gather();
        let now = instant();
        let wanted = |s: &Slot| !s.attends && wanted(s.category);
        // What waits for a later time goes on waiting.
        let begun = self.planned.as_ref().is_some_and(|(at, _)| *at <= now);
        let expected = |s: &Slot| s.is_expected() && (begun || s.planned == Planned::Begun);
        if !self.slots.iter().any(|s| wanted(s) || expected(s)) {
            return;
        }
        self.recall(now);
        let expected = self.slots.iter().enumerate().filter(|(_, s)| s.is_expected());
        let mut waiting: Vec<usize> = expected.map(|(i, _)| i).collect();
        let asked = |s: &Slot| planned.is_some_and(|at| s.last >= Some(at));
        let slots = self.slots.iter_mut().enumerate();
        let jobs: Vec<Job> = slots
            .filter(|(_, s)| s.attends || (wanted(s) && !asked(s)))
            .filter_map(|(i, s)| s.hand_over(i, now))
            .collect();
        self.soon &= !jobs.iter().any(|job| job.attends);
        waiting.extend(jobs.iter().map(|j| j.index));
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
            tokio::time::timeout_at(until.into(), outbox.anybody()).await.ok();
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
        match self.worker() {
            Some(worker) => worker.push(jobs),
            None => jobs.for_each(|job| self.give_back(job)),
        }
    }

    /// The thread; there is one from the first job on.
    fn worker(&mut self) -> Option<&Worker> {
        if self.worker.is_none() {
            match Worker::start(Arc::clone(&self.outbox)) {
                Ok(worker) => self.worker = Some(worker),
                Err(e) => tracing::error!("no thread for collectors, figures go stale: {e}"),
            }
        }
        self.worker.as_ref()
    }

    /// There is nobody to do it: whoever is asked next does.
    fn give_back(&mut self, job: Job) {
        self.soon |= job.attends;
        self.put_back(job);
    }

    fn put_back(&mut self, job: Job) {
        if let Some(slot) = self.slots.get_mut(job.index) {
            slot.since = None;
            slot.planned = Planned::No;
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
            if slot.planned != Planned::No && !self.read.contains(&slot.category) {
                self.read.push(slot.category);
            }
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
        s.sample(|_| true, Duration::from_secs(60)).await;
        let now = Instant::now();
        assert_eq!(
            (s.figures().uptime.fresh(now), s.figures().temperature.fresh(now)),
            (Some(&1), None)
        );
        assert!(s.stuck().is_empty());
        assert_eq!(late(&mut s).await, Some(41));
        s.sample(|_| true, Duration::from_secs(60)).await;
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
