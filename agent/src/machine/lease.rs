//! How long a machine may be. Measured on the clock that counts from the boot and goes on in suspend: whoever sets the
//! wall clock neither lengthens nor shortens a lease.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::unix_seconds;
use crate::files::{FileError, read_text};

/// One moment on this boot's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Names the boot.
    pub boot_id: String,
    /// Milliseconds since it.
    pub boot_ms: u64,
    /// UNIX seconds, for people.
    pub unix: u64,
}

impl Moment {
    /// Now.
    ///
    /// # Errors
    /// The kernel does not tell its boot.
    pub fn now(proc: &Path) -> Result<Self, FileError> {
        let boot_id = read_text(&proc.join("sys/kernel/random/boot_id"), 64)?
            .trim()
            .to_owned();
        Ok(Self {
            boot_id,
            boot_ms: boot_ms(),
            unix: unix_seconds(),
        })
    }
}

/// Milliseconds since this boot.
fn boot_ms() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ms = |n| u64::try_from(n).unwrap_or(0);
    ms(t.tv_sec)
        .saturating_mul(1000)
        .saturating_add(ms(t.tv_nsec) / 1_000_000)
}

/// The end of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The boot it was given in; no machine outlives it.
    pub boot_id: String,
    /// Milliseconds of that boot.
    pub end_boot_ms: u64,
    /// UNIX seconds, for people.
    pub end: u64,
}

impl Lease {
    /// Ends `seconds` after `now`.
    #[must_use]
    pub fn from(now: &Moment, seconds: u64) -> Self {
        Self {
            boot_id: now.boot_id.clone(),
            end_boot_ms: now.boot_ms.saturating_add(seconds.saturating_mul(1000)),
            end: now.unix.saturating_add(seconds),
        }
    }

    /// What is left of it.
    #[must_use]
    pub fn left(&self, now: &Moment) -> Duration {
        if self.boot_id == now.boot_id {
            Duration::from_millis(self.end_boot_ms.saturating_sub(now.boot_ms))
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_on_the_boots_clock_whatever_the_wall_says() {
        let now = Moment::now(Path::new("/proc")).unwrap();
        let lease = Lease::from(&now, 60);
        assert_eq!(lease.left(&now), Duration::from_secs(60));
        let stepped = Moment {
            unix: now.unix + 1_000_000,
            ..now.clone()
        };
        assert_eq!(lease.left(&stepped), Duration::from_secs(60));
        let later = Moment {
            boot_ms: now.boot_ms + 60_001,
            ..now.clone()
        };
        assert_eq!(lease.left(&later), Duration::ZERO);
        let rebooted = Moment {
            boot_id: "other".to_owned(),
            ..now
        };
        assert_eq!(lease.left(&rebooted), Duration::ZERO);
    }
}
