use std::time::{SystemTime, UNIX_EPOCH};

use hpc_schema::time::Rfc3339;

/// The wall clock at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Wall {
    seconds: u64,
    nanos: u32,
}

impl Wall {
    /// Now. A clock before 1970 reads as 1970; the gateway then says so.
    #[must_use]
    pub fn now() -> Self {
        let d = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            seconds: d.as_secs(),
            nanos: d.subsec_nanos(),
        }
    }

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

/// Whole UNIX seconds now.
#[must_use]
pub fn unix_seconds() -> u64 {
    Wall::now().seconds()
}
