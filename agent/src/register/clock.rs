//! The gateway's clock beside ours: a certificate that has expired by our clock before it is made is not asked for.

use std::path::Path;
use std::time::Duration;

use hpc_schema::report::MAX_AHEAD_SECONDS;

use crate::clock::Clock;
use crate::uplink::{Answer, Identity};

/// Nothing answers there but "no such path", and that with the time.
pub(crate) const TIME_PATH: &str = "/api/v1/hpc/doctor";
/// How long a certificate lives, until one says otherwise: what gateways give by default.
pub(crate) const LIFE: Duration = Duration::from_secs(24 * 3600);
/// What to do.
pub(super) const REMEDY: &str = "synchronise it (NTP); no certificate is asked for until then";

/// Our clock is ahead of the gateway's by more than a certificate lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node's clock is {seconds} s ahead of the gateway's: by it a certificate has expired before it is made"
)]
pub(crate) struct Ahead {
    seconds: u64,
}

impl Ahead {
    /// Looks at what an answer says of the time; `life` is that of a certificate.
    ///
    /// # Errors
    /// Our clock is ahead so far. Where heartbeats are taken in spite of it, so are certificates.
    pub(super) fn look(answer: &Answer, clock: &Clock, life: Duration) -> Result<(), Self> {
        let seconds = answer
            .date
            .map_or(0, |theirs| clock.seconds().saturating_sub(theirs));
        if seconds > life.as_secs().max(MAX_AHEAD_SECONDS) {
            return Err(Self { seconds });
        }
        Ok(())
    }

    /// The gateway's clock minus ours, in milliseconds.
    pub(crate) fn skew_ms(self) -> i64 {
        let seconds = i64::try_from(self.seconds).unwrap_or(i64::MAX);
        seconds.saturating_mul(1000).saturating_neg()
    }
}

/// How long the certificate that came with this answer lives from then on: it may have been made for an earlier request. None:
/// it cannot be read, and is refused by whoever takes it.
pub(super) fn left(answer: &Answer, certificate: &str, tls_key: &str) -> Option<Duration> {
    let issued = Identity::from_pem(Path::new("the answer"), certificate, tls_key).ok()?;
    let from = answer.date.unwrap_or_else(|| issued.not_before());
    Some(Duration::from_secs(issued.not_after().saturating_sub(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_once_a_fresh_certificate_has_expired_by_it_and_heartbeats_are_refused_for_it() {
        let clock = Clock::new(|| Duration::from_secs(1_000_000));
        let look = |date: Option<u64>, life: u64| {
            let answer = Answer {
                status: 200,
                retry_after: None,
                body: Vec::new(),
                date,
                latency: Duration::ZERO,
            };
            Ahead::look(&answer, &clock, Duration::from_secs(life))
        };
        for fine in [None, Some(1_000_000), Some(2_000_000), Some(1_000_000 - 3600)] {
            assert_eq!(look(fine, 3600), Ok(()), "{fine:?}");
        }
        let ahead = look(Some(1_000_000 - 3601), 3600).unwrap_err();
        assert_eq!(ahead.skew_ms(), -3_601_000);
        assert!(ahead.to_string().contains("3601 s ahead"), "{ahead}");
        assert_eq!(look(Some(1_000_000 - 60), 30), Ok(()));
        look(Some(1_000_000 - 61), 30).unwrap_err();
    }
}
