//! The clocks and the random source, at the edge; everything inside takes time and chance as arguments.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hpc_schema::time::UnixSeconds;
use rand::TryRngCore as _;

/// UNIX milliseconds; 0 before 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// UNIX seconds.
#[must_use]
pub fn now() -> UnixSeconds {
    UnixSeconds(now_ms() / 1000)
}

/// Milliseconds of a clock that is never set, since a moment of this process's own: for what counts by time gone by. One that
/// waits for the wall clock waits for hours after that is put back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Steady(pub u64);

impl Steady {
    /// So many milliseconds later.
    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds gone by since then; 0 if that is still to come.
    #[must_use]
    pub fn since(self, then: Self) -> u64 {
        self.0.saturating_sub(then.0)
    }
}

/// What that clock shows.
#[must_use]
pub fn steady() -> Steady {
    steady_at(Instant::now())
}

fn steady_at(at: Instant) -> Steady {
    static SINCE: LazyLock<Instant> = LazyLock::new(Instant::now);
    let since = at.saturating_duration_since(*SINCE);
    Steady(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// One moment by both clocks: read once, for all that a request needs of them at its beginning.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// By the clock that is never set.
    pub at: Instant,
    /// UNIX milliseconds.
    pub ms: u64,
}

impl Moment {
    /// This one.
    #[must_use]
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            ms: now_ms(),
        }
    }

    /// UNIX seconds.
    #[must_use]
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.ms / 1000)
    }

    /// As [`steady`] shows it.
    #[must_use]
    pub fn steady(self) -> Steady {
        steady_at(self.at)
    }
}

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness;

/// Random bytes of the operating system.
///
/// # Errors
/// If it has none.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_by_time_gone_by_has_a_clock_that_nobody_sets() {
        let before = steady();
        assert!(before <= steady());
        // The wall clock shows decades.
        assert!(before.0 < now_ms() / 2, "{before:?}");
        let moment = Moment::now();
        assert!(before <= moment.steady() && moment.steady() <= steady());
    }
}
