use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Tells settlement that there may be something to do before its next deadline. A heartbeat alone is no reason: only
/// the one that closes a batch is.
#[derive(Debug)]
pub struct Wake {
    /// Reports since settlement last looked.
    arrived: AtomicU64,
    /// With so many it should look again.
    wanted: AtomicU64,
    calls: watch::Sender<u64>,
}

impl Default for Wake {
    fn default() -> Self {
        Self {
            arrived: AtomicU64::new(0),
            wanted: AtomicU64::new(1),
            calls: watch::Sender::new(0),
        }
    }
}

impl Wake {
    /// So many reports have come into the queue.
    pub fn reports(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let before = self.arrived.fetch_add(count, Ordering::Relaxed);
        if (before..before.saturating_add(count))
            .contains(&self.wanted.load(Ordering::Relaxed).saturating_sub(1))
        {
            self.call();
        }
    }

    /// Something else waits that should not be kept waiting, such as a registration.
    pub fn call(&self) {
        self.calls.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// For one who waits.
    pub(super) fn calls(&self) -> watch::Receiver<u64> {
        self.calls.subscribe()
    }

    /// Settlement is about to look; it wants to look again after so many more reports.
    pub(super) fn expect(&self, more: u64) {
        self.wanted.store(more.max(1), Ordering::Relaxed);
    }

    /// Counts from here: what has arrived so far is about to be looked at.
    pub(super) fn looks(&self) {
        self.arrived.store(0, Ordering::Relaxed);
    }

    /// Whether enough have arrived.
    pub(super) fn is_due(&self) -> bool {
        self.arrived.load(Ordering::Relaxed) >= self.wanted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settlement_is_woken_by_the_report_that_closes_a_batch_and_by_no_other() {
        let wake = Wake::default();
        let mut calls = wake.calls();
        wake.looks();
        wake.expect(50);
        for _ in 0..49 {
            wake.reports(1);
            assert!(!calls.has_changed().unwrap() && !wake.is_due());
        }
        wake.reports(1);
        assert!(calls.has_changed().unwrap() && wake.is_due());
        calls.mark_unchanged();
        for _ in 0..1000 {
            wake.reports(1);
        }
        assert!(!calls.has_changed().unwrap(), "nor again before it has looked");
        wake.call();
        assert!(calls.has_changed().unwrap(), "a registration does");
    }
}
