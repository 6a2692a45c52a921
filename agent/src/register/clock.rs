//! The gateway's clock beside ours: a certificate that has expired by our clock before it is made is not asked for.

use std::path::Path;
use std::time::Duration;

use hpc_schema::report::MAX_AHEAD_SECONDS;

use crate::clock::Clock;
use crate::uplink::{Answer, Client, Identity};

/// Nothing answers there but "no such path", and that with the time.
pub(crate) const TIME_PATH: &str = "/api/v1/hpc/doctor";
/// How long a certificate lives, until one says otherwise: what gateways give by default.
pub(crate) const LIFE: Duration = Duration::from_secs(24 * 3600);
/// What to do.
pub(super) const REMEDY: &str =
    "synchronise this node's clock, or the gateway's (NTP); no certificate is asked for there until then";

/// Our clock is ahead of the gateway's by more than a certificate lives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node's clock is {seconds} s ahead of that of {gateway}, or that one is behind: by this node's a certificate has expired before it is made"
)]
pub(crate) struct Ahead {
    seconds: u64,
    gateway: String,
}

impl Ahead {
    /// Looks at what an answer of the gateway in use says of the time; `life` is that of a certificate.
    ///
    /// # Errors
    /// Our clock is ahead so far. It may be the gateway's that is wrong: `client` is at the next one afterwards.
    pub(super) fn look(
        client: &mut Client,
        answer: &Answer,
        clock: &Clock,
        life: Duration,
    ) -> Result<(), Self> {
        // From one in trouble comes no certificate, and `client` has left it by now.
        let seconds = seconds_ahead(answer, clock, life).filter(|_| answer.status < 500);
        let Some(seconds) = seconds else {
            return Ok(());
        };
        let gateway = client.endpoint().to_owned();
        if client.has_others() {
            client.fail_over();
        }
        Err(Self { seconds, gateway })
    }

    /// Whose clock that is.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// The gateway's clock minus ours, in milliseconds.
    pub(crate) fn skew_ms(&self) -> i64 {
        let seconds = i64::try_from(self.seconds).unwrap_or(i64::MAX);
        seconds.saturating_mul(1000).saturating_neg()
    }
}

/// By how much our clock is ahead, if no certificate would count by it. Where heartbeats are taken in spite of it, so are
/// certificates.
fn seconds_ahead(answer: &Answer, clock: &Clock, life: Duration) -> Option<u64> {
    let seconds = clock.seconds().saturating_sub(answer.date?);
    (seconds > life.as_secs().max(MAX_AHEAD_SECONDS)).then_some(seconds)
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
            seconds_ahead(&answer, &clock, Duration::from_secs(life))
        };
        for fine in [None, Some(1_000_000), Some(2_000_000), Some(1_000_000 - 3600)] {
            assert_eq!(look(fine, 3600), None, "{fine:?}");
        }
        assert_eq!(look(Some(1_000_000 - 3601), 3600), Some(3601));
        assert_eq!(look(Some(1_000_000 - 60), 30), None);
        assert_eq!(look(Some(1_000_000 - 61), 30), Some(61));
        let ahead = Ahead {
            seconds: 3601,
            gateway: "https://a:1".to_owned(),
        };
        assert_eq!(ahead.skew_ms(), -3_601_000);
    }
}
