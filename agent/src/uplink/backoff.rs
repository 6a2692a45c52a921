//! Exponential backoff with full jitter: waits are drawn evenly from zero to a bound that doubles, so that a thousand
//! agents that lost their gateway together do not come back together.

use std::time::Duration;

/// Waits between attempts.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

/// Even the luckiest draw waits this long.
const SHORTEST: Duration = Duration::from_millis(100);

impl Backoff {
    /// Bounds: `first` after one failure, doubling up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed: how long to wait. `random` answers a number from 0 to its argument.
    pub fn next(&mut self, random: impl FnOnce(u64) -> u64) -> Duration {
        let factor = 2u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        let bound = self.first.saturating_mul(factor).min(self.longest);
        let drawn = random(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX));
        Duration::from_millis(drawn).max(SHORTEST).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_longest_and_starts_again_after_success() {
        let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let waits: Vec<u64> = (0..8).map(|_| b.next(|limit| limit).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(b.next(|_| 0), SHORTEST);
        for _ in 0..100 {
            b.next(|limit| limit);
        }
        b.reset();
        assert_eq!(b.next(|limit| limit), Duration::from_secs(1));
    }

    #[test]
    fn a_thousand_agents_do_not_come_back_together() {
        let mut buckets = [0u32; 30];
        for _ in 0..1000 {
            let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
            for _ in 0..6 {
                b.next(crate::random::up_to);
            }
            let wait = b.next(crate::random::up_to).as_millis();
            buckets[usize::try_from(wait / 1001).unwrap()] += 1;
        }
        assert!(buckets.iter().all(|n| *n < 100), "{buckets:?}");
    }
}
