//! Counts of the last 24 hours that survive a restart: one number per ten minutes of wall-clock time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Seconds of one slot.
const SLOT: u64 = 600;
/// Seconds that count.
pub const DAY: u64 = 86_400;
/// 2025-01-01, before the first agent: a clock that stands there is not set (no battery, no time server yet).
const SET: u64 = 1_735_689_600;
/// Numbers that are kept: a day's on each side of the clock, and another day's far ahead.
const MOST: usize = 512;

/// How many, and when; at most 512 numbers.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DayCount(BTreeMap<u64, u32>);

impl DayCount {
    /// Adds `n` events of `time`, as seen at `now` (UNIX seconds). What is older than a day is left out; what lies
    /// ahead (the clock was set back) counts as now; while the clock is not set, all does.
    pub fn add(&mut self, time: u64, now: u64, n: u32) {
        if time.saturating_add(DAY) <= now || n == 0 {
            return;
        }
        let present = self.present(now);
        let at = if now < SET { present } else { time.min(now) / SLOT };
        let slot = self.0.entry(at).or_default();
        *slot = slot.saturating_add(n);
        self.prune(present);
    }

    /// Events of the last 24 hours, to ten minutes.
    #[must_use]
    pub fn total(&self, now: u64) -> u32 {
        let present = self.present(now);
        let last = present.saturating_add(DAY / SLOT);
        // A clock that was set back by less than a day loses nothing.
        self.0
            .range(first(present)..=last)
            .fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// The slot of `now`; of a clock that is not set, the newest that a better one has shown.
    fn present(&self, now: u64) -> u64 {
        let slot = now / SLOT;
        let newest = self.0.last_key_value().map(|(slot, _)| *slot);
        newest.filter(|_| now < SET).map_or(slot, |n| n.max(slot))
    }

    /// Only what is old goes. What lies far ahead is not counted, and stays: it is the clock of now that may be wrong, and
    /// once it is set what is kept is of the last day again. The farthest is believed least.
    fn prune(&mut self, present: u64) {
        self.0.retain(|slot, _| *slot >= first(present));
        while self.0.len() > MOST {
            self.0.pop_last();
        }
    }
}

/// The first slot of the day that ends with `present`.
fn first(present: u64) -> u64 {
    present.saturating_sub(DAY / SLOT).saturating_add(1)
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

    #[test]
    fn a_clock_that_falls_back_by_years_and_is_set_again_loses_no_count() {
        let mut c = DayCount::default();
        c.add(NOW, NOW, 2);
        c.add(NOW - 3600, NOW, 1);
        // Started without a battery: 1970, until a time server answers.
        assert_eq!(c.total(60), 3);
        c.add(60, 60, 1);
        assert_eq!(c.total(60), 4);
        assert_eq!(c.total(NOW + 600), 4);
        c.add(NOW + 600, NOW + 600, 1);
        assert_eq!(c.total(NOW + 600), 5);
        // Set a year back by hand: what is dated ahead is not of this day, and is there when the clock is right again.
        let wrong = NOW - 365 * DAY;
        c.add(wrong, wrong, 1);
        assert_eq!(c.total(wrong), 1);
        c.add(NOW + 1200, NOW + 1200, 1);
        assert_eq!(c.total(NOW + 1200), 6);
        // And it ends with its day, as ever.
        assert_eq!(c.total(NOW + 2 * DAY), 0);
    }

    proptest! {
        #[test]
        fn whatever_comes_the_counter_stays_small(events in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..300)) {
            let mut c = DayCount::default();
            for (time, now, n) in events {
                c.add(time, now, n);
                prop_assert!(c.0.len() <= MOST);
                prop_assert_eq!(c.total(now), c.clone().total(now));
            }
        }
    }
}
