//! Counts of the last 24 hours that survive a restart: one number per ten minutes of wall-clock time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Seconds of one slot.
const SLOT: u64 = 600;
/// Seconds that count.
pub const DAY: u64 = 86_400;

/// How many, and when; at most 289 numbers.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DayCount(BTreeMap<u64, u32>);

impl DayCount {
    /// Adds `n` events of `time`, as seen at `now` (UNIX seconds). What is older than a day is left out; what lies
    /// ahead (the clock was set back) counts as now.
    pub fn add(&mut self, time: u64, now: u64, n: u32) {
        if time.saturating_add(DAY) <= now || n == 0 {
            return;
        }
        let slot = self.0.entry(time.min(now) / SLOT).or_default();
        *slot = slot.saturating_add(n);
        self.prune(now);
    }

    /// Events of the last 24 hours, to ten minutes.
    #[must_use]
    pub fn total(&self, now: u64) -> u32 {
        let (first, last) = Self::bounds(now);
        self.0
            .range(first..=last)
            .fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    fn prune(&mut self, now: u64) {
        let (first, last) = Self::bounds(now);
        self.0.retain(|slot, _| (first..=last).contains(slot));
    }

    /// A clock that was set back by less than a day loses nothing.
    fn bounds(now: u64) -> (u64, u64) {
        let first = (now / SLOT).saturating_sub(DAY / SLOT).saturating_add(1);
        (first, (now / SLOT).saturating_add(DAY / SLOT))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_769_781_900;

    #[test]
    fn events_count_for_a_day_and_then_no_more() {
        let mut c = DayCount::default();
        c.add(NOW, NOW, 2);
        c.add(NOW - 3600, NOW, 1);
        c.add(NOW - DAY, NOW, 7);
        assert_eq!(c.total(NOW), 3);
        assert_eq!(c.total(NOW + DAY - 3600), 2);
        assert_eq!(c.total(NOW + DAY + SLOT), 0);
        // The clock was set back an hour, then an event came that the kernel dates ahead.
        assert_eq!(c.total(NOW - 3600), 3);
        c.add(NOW, NOW - 3600, 1);
        assert_eq!(c.total(NOW - 3600), 4);
    }

    proptest! {
        #[test]
        fn whatever_comes_the_counter_stays_small(events in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..300)) {
            let mut c = DayCount::default();
            for (time, now, n) in events {
                c.add(time, now, n);
                prop_assert!(c.0.len() <= 289);
                prop_assert_eq!(c.total(now), c.clone().total(now));
            }
        }
    }
}
