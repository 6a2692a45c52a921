//! Which categories are due, and when the next one is. Pure: time is an argument.

use std::time::{Duration, Instant};

use super::{Adaptive, Category, max_staleness, minimum};
use crate::config::SamplingConfig;

/// Categories that fall due within this of each other are measured together: fewer wake-ups.
const SLACK: Duration = Duration::from_millis(500);

/// The sampling schedule of one moment.
#[derive(Debug, Clone, Copy)]
pub struct Schedule<'a> {
    /// Intervals.
    pub config: &'a SamplingConfig,
    /// The node's condition.
    pub adaptive: &'a Adaptive,
    /// The moment.
    pub now: Instant,
    /// There are GPUs: a program asks them.
    pub gpus: bool,
}

impl Schedule<'_> {
    /// Whether `category`, last measured at `last`, is due.
    #[must_use]
    pub fn due(&self, category: Category, last: Option<Instant>) -> bool {
        last.is_none_or(|last| {
            let age = self.age(last);
            age >= minimum(category) && age.saturating_add(SLACK) >= self.interval(category)
        })
    }

    /// Whether `category` should be measured before a heartbeat leaves: it is due, or is so within a tenth of its interval (as
    /// much as a heartbeat's jitter: both then take one wake-up), or its figures would pass their longest staleness before the
    /// next heartbeat could carry fresher ones. What costs little and falls due before the next heartbeat is measured for
    /// this one, once most of its interval has passed: fresher, and no wake-up of its own. Not where load has stretched the
    /// interval: it is to be measured less often then.
    #[must_use]
    pub fn due_before_sending(
        &self,
        category: Category,
        last: Option<Instant>,
        until_next: Duration,
    ) -> bool {
        self.due(category, last)
            || last.is_some_and(|last| {
                let age = self.age(last);
                let interval = self.interval(category);
                let soon = age.saturating_add(interval / 10) >= interval;
                let stale = age.saturating_add(until_next) > max_staleness(category);
                let most = self.is_light(category)
                    && interval <= self.config.interval(category)
                    && age >= interval.saturating_mul(3) / 5
                    && age.saturating_add(until_next) > interval;
                age >= minimum(category) && (soon || stale || most)
            })
    }

    /// When the next category falls due; `last` pairs each with its last measurement.
    #[must_use]
    pub fn next(&self, last: impl IntoIterator<Item = (Category, Option<Instant>)>) -> Instant {
        last.into_iter()
            .map(|(category, at)| match at {
                Some(at) => at.checked_add(self.interval(category)).unwrap_or(self.now),
                None => self.now,
            })
            .min()
            .unwrap_or(self.now)
    }

    fn interval(&self, category: Category) -> Duration {
        self.adaptive
            .interval(category, self.config.interval(category), self.now)
    }

    /// Whether it is measured without starting a program.
    fn is_light(&self, category: Category) -> bool {
        match category {
            Category::Utilization => true,
            Category::Gpu => !self.gpus,
            _ => false,
        }
    }

    fn age(&self, last: Instant) -> Duration {
        self.now.saturating_duration_since(last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn each_category_has_its_own_interval() {
        let (config, adaptive, start) = (SamplingConfig::default(), Adaptive::default(), Instant::now());
        let at = |seconds| Schedule {
            config: &config,
            adaptive: &adaptive,
            now: start + s(seconds),
            gpus: false,
        };
        let last = Some(start);
        assert!(at(0).due(Category::Capacity, None));
        assert!(!at(14).due(Category::Utilization, last) && at(15).due(Category::Utilization, last));
        assert!(!at(29).due(Category::Capacity, last) && at(30).due(Category::Capacity, last));
        assert!(!at(59).due(Category::Temperature, last) && at(60).due(Category::Temperature, last));
        let all = |last| [(Category::Capacity, last), (Category::Utilization, last)];
        assert_eq!(at(1).next(all(last)), start + s(15));
        assert_eq!(at(1).next(all(None)), start + s(1));
    }

    #[test]
    fn a_figure_about_to_pass_its_longest_staleness_is_measured_before_sending() {
        let (mut config, adaptive, start) = (SamplingConfig::default(), Adaptive::default(), Instant::now());
        config.set_interval(Category::Utilization, s(30));
        let at = |seconds| Schedule {
            config: &config,
            adaptive: &adaptive,
            now: start + s(seconds),
            gpus: false,
        };
        let last = Some(start);
        assert!(!at(20).due(Category::Utilization, last));
        assert!(at(20).due_before_sending(Category::Utilization, last, s(11)));
        assert!(!at(20).due_before_sending(Category::Utilization, last, s(10)));
        // What is due in a moment goes with it.
        assert!(at(27).due_before_sending(Category::Utilization, last, s(1)));
        assert!(!at(26).due_before_sending(Category::Utilization, last, s(1)));
        // But never below the minimum interval.
        assert!(!at(4).due_before_sending(Category::Utilization, last, s(60)));
    }

    #[test]
    fn what_is_light_and_falls_due_between_two_heartbeats_goes_with_the_first() {
        let (config, adaptive, start) = (SamplingConfig::default(), Adaptive::default(), Instant::now());
        let last = Some(start);
        let at = |seconds, category, until_next, gpus| {
            let schedule = Schedule {
                config: &config,
                adaptive: &adaptive,
                now: start + s(seconds),
                gpus,
            };
            schedule.due_before_sending(category, last, s(until_next))
        };
        for light in [Category::Utilization, Category::Gpu] {
            assert!(
                at(9, light, 10, false),
                "due after 15 s, the next heartbeat leaves after 19"
            );
            assert!(!at(8, light, 10, false), "most of its interval is left");
            assert!(!at(9, light, 6, false), "it is not due before the next heartbeat");
        }
        assert!(!at(9, Category::Gpu, 10, true), "a program asks them");
        assert!(
            !at(20, Category::Capacity, 20, false),
            "a program asks the batch system"
        );
    }

    #[test]
    fn an_interval_that_load_has_stretched_is_waited_for_and_one_that_a_change_has_halved_is_not() {
        let (config, start) = (SamplingConfig::default(), Instant::now());
        let at = |adaptive: &Adaptive, tenths: u64, until_next: u64| {
            let schedule = Schedule {
                config: &config,
                adaptive,
                now: start + Duration::from_millis(tenths * 100),
                gpus: false,
            };
            schedule.due_before_sending(Category::Utilization, Some(start), s(until_next))
        };
        // Of 22.5 s three fifths are 13.5; a tenth before its end it goes along.
        let mut busy = Adaptive::default();
        busy.cpu(Some(80));
        assert!(!at(&busy, 135, 10) && !at(&busy, 202, 9));
        assert!(at(&busy, 203, 9));
        assert!(at(&busy, 201, 10), "at the next heartbeat it would be too old");
        let mut changing = Adaptive::default();
        changing.changed(start, s(60));
        assert!(at(&changing, 50, 10), "the shortest interval");
        assert!(!at(&changing, 45, 10));
        assert!(at(&Adaptive::default(), 90, 10));
    }

    /// What happens to a node in one stretch of simulated time.
    #[derive(Debug, Clone, Copy)]
    struct Stretch {
        cpu: u8,
        changed: bool,
        /// Until the next heartbeat, in seconds, as the gateway asked.
        beat: u64,
    }

    fn stretch() -> impl Strategy<Value = Stretch> {
        (0u8..=100, any::<bool>(), 10u64..=120).prop_map(|(cpu, changed, beat)| Stretch {
            cpu,
            changed,
            beat,
        })
    }

    proptest! {
        /// The loop of the agent with its clock in the test's hands: whatever the load, the changes and the interval
        /// of heartbeats, no category is measured more often than its minimum, and none is too old when a heartbeat
        /// leaves.
        #[test]
        fn no_figure_is_measured_too_often_or_sent_too_old(
            base in proptest::collection::vec(0u64..=1000, Category::ALL.len()),
            stretches in proptest::collection::vec(stretch(), 1..60),
            gpus in any::<bool>(),
        ) {
            let mut config = SamplingConfig::default();
            for (c, thousandth) in Category::ALL.into_iter().zip(base) {
                let room = max_staleness(c) - minimum(c);
                config.set_interval(c, minimum(c) + room * u32::try_from(thousandth).unwrap() / 1000);
            }
            let mut adaptive = Adaptive::default();
            let mut now = Instant::now();
            let mut last: Vec<(Category, Option<Instant>)> = Category::ALL.map(|c| (c, None)).into();
            for Stretch { cpu, changed, beat } in stretches {
                adaptive.cpu(Some(cpu));
                if changed {
                    adaptive.changed(now, s(beat * 2));
                }
                let leaves = now + s(beat);
                loop {
                    let schedule = Schedule { config: &config, adaptive: &adaptive, now, gpus };
                    let sending = now >= leaves;
                    for (c, at) in &mut last {
                        let due = if sending {
                            schedule.due_before_sending(*c, *at, s(beat))
                        } else {
                            schedule.due(*c, *at)
                        };
                        if due {
                            let age = at.map(|at| now - at);
                            prop_assert!(age.is_none_or(|age| age >= minimum(*c)), "{c:?} after {age:?}");
                            *at = Some(now);
                        }
                    }
                    if sending {
                        for (c, at) in &last {
                            let age = now - at.unwrap();
                            prop_assert!(age <= max_staleness(*c), "{c:?} is {age:?} old");
                        }
                        break;
                    }
                    let next = schedule.next(last.iter().copied());
                    prop_assert!(next > now || last.iter().any(|(_, at)| at.is_none()), "the loop spins");
                    now = next.min(leaves);
                }
            }
        }
    }
}
