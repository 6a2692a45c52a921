//! Block time.

use std::time::{SystemTime, UNIX_EPOCH};

/// The clock that blocks take their time from: the machine's, moved by an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset_nanos: i128,
}

impl Clock {
    /// The machine's clock, so many seconds behind.
    pub(super) fn behind(seconds: u64) -> Self {
        Self {
            offset_nanos: -i128::from(seconds) * 1_000_000_000,
        }
    }

    /// Makes the clock show `nanos` now and go on from there.
    pub(super) fn set(&mut self, nanos: u64) {
        self.offset_nanos = i128::from(nanos) - machine();
    }

    /// The time of a block after one at `previous`: now, but always later than `previous`.
    ///
    /// `stale` gives the earliest possible time instead: a real chain's first block after a halt is stamped with
    /// votes that were cast before it.
    pub(super) fn block_time(self, previous: u64, stale: bool) -> u64 {
        let least = previous.saturating_add(1_000_000);
        if stale {
            return least;
        }
        u64::try_from(machine() + self.offset_nanos)
            .unwrap_or(0)
            .max(least)
    }
}

fn machine() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(0)
}
