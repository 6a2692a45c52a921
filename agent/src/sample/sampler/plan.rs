//! Rounds that begin by themselves: the thread of the collectors waits for their moment, so that the loop wakes up once, when
//! all is read, and not before as well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::slot::{Planned, Slot};
use super::{Category, Job, Sampler, Worker};
use crate::clock::instant;

impl Sampler {
    /// Has the categories that `wanted` names measured at `at`, in place of what was planned before; when that begins, or has
    /// begun, if there is anything to measure. [`Sampler::round_read`] tells when it is read, [`Sampler::take_read`] what that
    /// was. Where no thread may wait, nothing is planned.
    pub fn plan(&mut self, wanted: impl Fn(Category) -> bool, at: Instant) -> Option<Instant> {
        self.gather();
        let wanted = |s: &Slot| !s.attends && wanted(s.category);
        if self.is_planned(wanted, at) {
            return Some(at);
        }
        let now = instant();
        if self.recall(now) {
            // That of before begins this moment: another one is planned when it is read.
            return Some(now);
        }
        if self.inline {
            if self.soon {
                self.attend();
            }
            return None;
        }
        self.leave_behind(now);
        let (mut first, mut later) = (VecDeque::new(), VecDeque::new());
        let mut all = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.attends && self.soon {
                first.extend(slot.hand_over(index, now));
            } else if wanted(slot) {
                all.push(index);
                later.extend(slot.plan(index));
            }
        }
        self.soon &= first.is_empty();
        self.planned = (!later.is_empty()).then_some((at, all));
        match self.worker() {
            Some(worker) => worker.plan(first, at, later),
            None => {
                self.planned = None;
                first.into_iter().chain(later).for_each(|job| self.give_back(job));
            }
        }
        self.planned.as_ref().map(|(at, _)| *at)
    }

    /// Whether it is so already.
    fn is_planned(&self, wanted: impl Fn(&Slot) -> bool, at: Instant) -> bool {
        let Some((planned, all)) = &self.planned else {
            return false;
        };
        let attends = self.soon && self.slots.iter().any(|s| s.attends && s.collector.is_some());
        let mut slots = self.slots.iter().enumerate();
        // One that is at home has come back since, and is not asked with the others.
        let as_wanted = |i, s: &Slot| all.contains(&i) == wanted(s) && !(wanted(s) && s.collector.is_some());
        *planned == at && !attends && slots.all(|(i, s)| as_wanted(i, s))
    }

    /// Waits until a round is read, or returns at once where there is one that [`Sampler::take_read`] has not told yet.
    pub fn round_read(&self) -> impl Future<Output = ()> + use<> {
        let (untold, outbox) = (!self.read.is_empty(), Arc::clone(&self.outbox));
        async move {
            if !untold {
                outbox.round_read().await;
            }
        }
    }

    /// The categories that were read as planned, since the last call.
    pub fn take_read(&mut self) -> Vec<Category> {
        self.gather();
        std::mem::take(&mut self.read)
    }

    /// Nothing begins by itself any more.
    pub fn call_off(&mut self) {
        self.recall(instant());
    }

    /// Takes back what was planned, unless it has begun: whether it has.
    pub(super) fn recall(&mut self, now: Instant) -> bool {
        let jobs: VecDeque<Job> = self.worker.as_ref().map(Worker::recall).unwrap_or_default();
        if !jobs.is_empty() {
            self.planned = None;
            jobs.into_iter().for_each(|job| self.put_back(job));
        }
        self.begun(now)
    }

    /// What was planned has begun: it counts as asked for then, also where a collector was away.
    pub(super) fn begun(&mut self, now: Instant) -> bool {
        let Some((at, all)) = self.planned.take() else {
            return false;
        };
        let slots = self.slots.iter_mut().enumerate();
        for (_, slot) in slots.filter(|(i, _)| all.contains(i)) {
            slot.last = Some(at.min(now));
            if slot.planned == Planned::Waits {
                slot.planned = Planned::Begun;
                slot.since = slot.last;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::sample::{Collector, Reading};

    /// Counts how often it is asked.
    struct Counts(Category, u64);
    impl Collector for Counts {
        fn name(&self) -> &'static str {
            "counts"
        }
        fn category(&self) -> Category {
            self.0
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            self.1 += 1;
            vec![Reading::Uptime(Some(self.1))]
        }
    }

    /// Says that it was there, behind a gate if there is one.
    struct Attends(mpsc::Sender<()>, Option<mpsc::Receiver<()>>);
    impl Collector for Attends {
        fn name(&self) -> &'static str {
            "attends"
        }
        fn category(&self) -> Category {
            Category::HealthStatus
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            if let Some(gate) = &self.1 {
                gate.recv().ok();
            }
            self.0.send(()).ok();
            Vec::new()
        }
    }

    /// Waits at a gate each time.
    struct Gated(Category, mpsc::Receiver<()>);
    impl Collector for Gated {
        fn name(&self) -> &'static str {
            "gated"
        }
        fn category(&self) -> Category {
            self.0
        }
        fn deadline(&self) -> Duration {
            Duration::from_secs(60)
        }
        fn collect(&mut self, _: Instant) -> Vec<Reading> {
            self.1.recv().ok();
            vec![Reading::Temperature(Some(40))]
        }
    }

    const MEASURED: Category = Category::Utilization;
    const PATIENCE: Duration = Duration::from_secs(60);

    fn in_ms(n: u64) -> Instant {
        Instant::now() + Duration::from_millis(n)
    }

    fn uptime(s: &Sampler) -> Option<u64> {
        s.figures().uptime.fresh(Instant::now()).copied()
    }

    /// Whether a round is read within a tenth of a second.
    async fn soon_read(s: &Sampler) -> bool {
        let waited = tokio::time::timeout(Duration::from_millis(100), s.round_read());
        waited.await.is_ok()
    }

    /// Until this many categories have been read as planned.
    async fn read(s: &mut Sampler, count: usize) -> Vec<Category> {
        let (mut all, end) = (Vec::new(), Instant::now() + PATIENCE);
        while all.len() < count && Instant::now() < end {
            all.extend(s.take_read());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        all
    }

    #[tokio::test]
    async fn a_planned_round_begins_by_itself_at_its_time_and_once() {
        let mut s = Sampler::new(vec![Box::new(Counts(MEASURED, 0))]);
        assert_eq!(s.plan(|_| false, in_ms(0)), None, "nothing to measure");
        let at = in_ms(1_000);
        assert_eq!(s.plan(|_| true, at), Some(at));
        assert_eq!(s.plan(|_| true, at), Some(at), "the same again changes nothing");
        assert_eq!((s.last(MEASURED), s.stuck().len()), (None, 0));
        s.round_read().await;
        assert!(Instant::now() >= at);
        assert_eq!((s.take_read(), uptime(&s)), (vec![MEASURED], Some(1)));
        assert_eq!(s.last(MEASURED), Some(at));
        // Nothing else comes of it.
        assert!(!soon_read(&s).await && s.take_read().is_empty());
    }

    #[tokio::test]
    async fn one_that_comes_home_after_the_plan_was_made_is_in_the_next() {
        let (free, gate) = mpsc::channel();
        let mut s = Sampler::new(vec![
            Box::new(Gated(Category::Temperature, gate)),
            Box::new(Counts(MEASURED, 0)),
        ]);
        s.sample(|c| c == Category::Temperature, Duration::from_millis(20))
            .await;
        let at = in_ms(1_000);
        assert_eq!(s.plan(|_| true, at), Some(at));
        free.send(()).unwrap();
        while s.figures().temperature.fresh(Instant::now()).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            s.gather();
        }
        assert_eq!(s.plan(|_| true, at), Some(at));
        free.send(()).unwrap();
        let all = read(&mut s, 2).await;
        assert!(
            all.contains(&MEASURED) && all.contains(&Category::Temperature),
            "{all:?}"
        );
    }

    #[tokio::test]
    async fn what_is_asked_for_before_its_time_is_measured_once() {
        let mut s = Sampler::new(vec![Box::new(Counts(MEASURED, 0))]);
        let at = in_ms(1_000);
        assert_eq!(s.plan(|_| true, at), Some(at));
        s.sample(|_| true, PATIENCE).await;
        assert_eq!((s.take_read(), uptime(&s)), (Vec::new(), Some(1)));
        while Instant::now() < at + Duration::from_millis(100) {
            assert!(!soon_read(&s).await, "it was taken back");
        }
        s.gather();
        assert_eq!(uptime(&s), Some(1));
        // So is what is called off.
        let at = in_ms(1_000);
        assert_eq!(s.plan(|_| true, at), Some(at));
        s.call_off();
        while Instant::now() < at + Duration::from_millis(100) {
            assert!(!soon_read(&s).await && s.take_read().is_empty());
        }
    }

    #[tokio::test]
    async fn what_hangs_is_left_behind_and_its_category_is_not_measured_again_for_it() {
        let (free, gate) = mpsc::channel();
        let mut s = Sampler::new(vec![
            Box::new(Gated(MEASURED, gate)),
            Box::new(Counts(MEASURED, 0)),
        ]);
        let at = in_ms(0);
        assert_eq!(s.plan(|_| true, at), Some(at));
        for _ in 0..10 {
            assert!(!soon_read(&s).await);
        }
        // It has begun: it is waited for, within its patience, and nothing is begun twice.
        s.sample(|_| true, PATIENCE).await;
        assert_eq!((uptime(&s), s.last(MEASURED)), (Some(1), Some(at)));
        assert_eq!(s.take_read(), [MEASURED]);
        // The rest is planned all the same, and then the category is not due for the one that hangs.
        let again = in_ms(0);
        assert_eq!(s.plan(|_| true, again), Some(again));
        assert_eq!(read(&mut s, 1).await, [MEASURED]);
        assert_eq!((uptime(&s), s.last(MEASURED)), (Some(2), Some(again)));
        // What it says in the end is taken.
        free.send(()).unwrap();
        assert_eq!(read(&mut s, 1).await, [MEASURED]);
    }

    #[tokio::test]
    async fn a_slow_round_is_told_whole_whatever_is_planned_or_written_meanwhile() {
        let (free, gate) = mpsc::channel();
        let (says, hears) = mpsc::channel();
        let mut s = Sampler::new(vec![
            Box::new(Counts(MEASURED, 0)),
            Box::new(Gated(Category::Temperature, gate)),
        ])
        .with_attendant(Box::new(Attends(says, None)));
        assert!(s.plan(|_| true, in_ms(0)).is_some());
        assert_eq!(read(&mut s, 1).await, [MEASURED]);
        // A plan for later, in which the slow one is missing, and one who writes.
        let later = in_ms(60_000);
        s.attend_soon();
        assert_eq!(s.plan(|_| true, later), Some(later));
        s.attend();
        assert_eq!(s.plan(|_| true, later), Some(later));
        free.send(()).unwrap();
        s.round_read().await;
        assert_eq!(s.take_read(), [Category::Temperature]);
        hears.recv_timeout(PATIENCE).unwrap();
        // It was no part of what waits for its time.
        assert_eq!(s.last(MEASURED).map(|last| last < later), Some(true));
        assert_eq!(s.plan(|_| true, later), Some(later));
        assert!(!soon_read(&s).await);
        assert_eq!(uptime(&s), Some(1));
    }

    #[tokio::test]
    async fn the_attendant_goes_along_with_a_plan() {
        let (says, hears) = mpsc::channel();
        let mut s =
            Sampler::new(vec![Box::new(Counts(MEASURED, 0))]).with_attendant(Box::new(Attends(says, None)));
        s.attend_soon();
        assert!(hears.try_recv().is_err());
        assert!(s.plan(|_| true, in_ms(100)).is_some());
        hears.recv_timeout(PATIENCE).unwrap();
        // The loop is not woken for it, but for what is measured.
        s.round_read().await;
        assert_eq!((s.take_read(), uptime(&s)), (vec![MEASURED], Some(1)));
        // A round that nobody asked it to attend.
        assert!(s.plan(|_| true, in_ms(0)).is_some());
        s.round_read().await;
        assert!(hears.try_recv().is_err());
    }

    #[tokio::test]
    async fn no_word_for_the_attendant_is_lost_and_the_end_waits_for_the_last() {
        let (free, gate) = mpsc::channel();
        let (says, hears) = mpsc::channel();
        let mut s = Sampler::new(vec![Box::new(Counts(MEASURED, 0))])
            .with_attendant(Box::new(Attends(says, Some(gate))));
        s.attend_soon();
        assert!(s.plan(|_| true, in_ms(60_000)).is_some());
        // It is away when it is asked again.
        s.attend_soon();
        assert!(s.plan(|_| true, in_ms(60_000)).is_some());
        assert!(!s.attended(Duration::from_millis(50)).await);
        free.send(()).unwrap();
        free.send(()).unwrap();
        assert!(s.attended(PATIENCE).await);
        assert!(hears.try_recv().is_ok() && hears.try_recv().is_ok() && hears.try_recv().is_err());
        assert_eq!(uptime(&s), None, "what was planned did not begin");
    }

    #[tokio::test]
    async fn what_the_attendant_has_to_say_wakes_the_loop() {
        struct Finds;
        impl Collector for Finds {
            fn name(&self) -> &'static str {
                "finds"
            }
            fn category(&self) -> Category {
                Category::HealthStatus
            }
            fn collect(&mut self, _: Instant) -> Vec<Reading> {
                vec![Reading::Word]
            }
        }
        let mut s = Sampler::new(vec![Box::new(Counts(MEASURED, 0))]).with_attendant(Box::new(Finds));
        s.attend_soon();
        assert!(s.plan(|_| true, in_ms(60_000)).is_some());
        s.round_read().await;
        assert!(s.take_read().is_empty() && s.is_attended());
    }
}
