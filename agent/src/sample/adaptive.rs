//! What adaptive sampling goes by: how busy the CPU is, and whether the node's state has just changed.

use std::time::{Duration, Instant};

use hpc_schema::heartbeat::Percent;

use super::Category;

/// The present condition of the node.
#[derive(Debug, Clone, Copy)]
pub struct Adaptive {
    cpu: Percent,
    changing_until: Option<Instant>,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            cpu: Percent::saturating(0),
            changing_until: None,
        }
    }
}

impl Adaptive {
    /// Takes over the last CPU figure; an unknown one leaves the former.
    pub fn cpu(&mut self, percent: Option<u8>) {
        if let Some(p) = percent {
            self.cpu = Percent::saturating(u64::from(p));
        }
    }

    /// The node's health or state changed: sample more often for `period`.
    pub fn changed(&mut self, now: Instant, period: Duration) {
        self.changing_until = now.checked_add(period);
    }

    /// The interval of `category` now, within its limits.
    #[must_use]
    pub fn interval(&self, category: Category, base: Duration, now: Instant) -> Duration {
        category.interval(
            base,
            self.cpu,
            self.changing_until.is_some_and(|until| now < until),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_state_halves_intervals_until_it_is_over() {
        let mut a = Adaptive::default();
        let now = Instant::now();
        let s = Duration::from_secs;
        assert_eq!(a.interval(Category::Capacity, s(30), now), s(30));
        a.changed(now, s(60));
        assert_eq!(a.interval(Category::Capacity, s(30), now), s(15));
        assert_eq!(a.interval(Category::Capacity, s(30), now + s(60)), s(30));
        a.cpu(Some(95));
        a.cpu(None);
        assert_eq!(a.interval(Category::Utilization, s(15), now), s(30));
        assert_eq!(a.interval(Category::Utilization, s(20), now), s(30));
    }
}
