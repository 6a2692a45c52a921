//! The two clocks: the wall's, for what others read, and the monotonic one, for waiting. Both can be simulated.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hpc_schema::time::Rfc3339;

/// Now, on the clock that tokio waits by: a test that pauses it runs in simulated time.
#[must_use]
pub fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// The machine's. Before 1970 it reads as 1970; the gateway then says so.
    #[must_use]
    pub fn system() -> Self {
        Self::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Any other; `since_epoch` gives the time since 1970.
    pub fn new(since_epoch: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(since_epoch))
    }

    /// Time since 1970.
    #[must_use]
    pub fn since_epoch(&self) -> Duration {
        (self.0)()
    }

    /// This moment.
    #[must_use]
    pub fn wall(&self) -> Wall {
        let d = self.since_epoch();
        Wall {
            seconds: d.as_secs(),
            nanos: d.subsec_nanos(),
        }
    }

    /// Whole UNIX seconds.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.since_epoch().as_secs()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.seconds())
    }
}

/// The wall clock at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Wall {
    seconds: u64,
    nanos: u32,
}

impl Wall {
    /// Whole UNIX seconds.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.seconds
    }

    /// For JSON; none beyond the year 9999.
    #[must_use]
    pub fn rfc3339(self) -> Option<Rfc3339> {
        Rfc3339::from_unix(self.seconds, self.nanos).ok()
    }

    /// `other` minus this, in milliseconds.
    #[must_use]
    pub fn skew_of(self, other: &Rfc3339) -> i64 {
        let millis = |s: u64, n: u32| {
            i64::try_from(s)
                .unwrap_or(i64::MAX)
                .saturating_mul(1000)
                .saturating_add(i64::from(n / 1_000_000))
        };
        millis(other.seconds().0, other.subsec_nanos()).saturating_sub(millis(self.seconds, self.nanos))
    }
}

/// Whole UNIX seconds now, by the machine's clock.
#[must_use]
pub fn unix_seconds() -> u64 {
    Clock::system().seconds()
}
