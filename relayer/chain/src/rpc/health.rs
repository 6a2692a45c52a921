use std::time::Duration;

use tokio::time::Instant;

/// One that cannot be asked for so long is down for good, until it answers: nobody waits for what it may have kept.
pub(super) const GIVEN_UP: Duration = Duration::from_secs(300);

/// What is known of one endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Health {
    /// Its newest block.
    pub(super) height: u64,
    /// Since it last showed a block of the right chain.
    pub(super) failures: u32,
    /// Since when it cannot be asked.
    away: Option<Instant>,
    /// It has named the right chain since it last failed.
    pub(super) verified: bool,
    /// It is one no more.
    pub(super) gone: bool,
}

impl Health {
    /// It has shown a block of the right chain.
    pub(super) fn seen(&mut self, height: u64) {
        *self = Self {
            height,
            failures: 0,
            away: None,
            verified: true,
            gone: self.gone,
        };
    }

    /// It has answered, whatever it said.
    pub(super) fn answered(&mut self) {
        self.away = None;
    }

    /// It could not be asked.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.away.get_or_insert(now);
        self.verified = false;
    }

    /// Whether it could not be asked for so long that it is not waited for.
    pub(super) fn is_given_up(&self, now: Instant) -> bool {
        self.away
            .is_some_and(|since| now.duration_since(since) >= GIVEN_UP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_given_up_once_it_could_not_be_asked_for_long_until_it_answers() {
        let start = Instant::now();
        let mut health = Health::default();
        assert!(!health.is_given_up(start + 2 * GIVEN_UP), "it was not asked");
        health.failed(start);
        health.failed(start + GIVEN_UP / 2);
        assert!(!health.is_given_up(start + GIVEN_UP / 2));
        assert!(health.is_given_up(start + GIVEN_UP));
        health.answered();
        assert!(!health.is_given_up(start + 2 * GIVEN_UP));
        health.failed(start + GIVEN_UP);
        assert!(health.is_given_up(start + 2 * GIVEN_UP));
        health.seen(7);
        assert!(!health.is_given_up(start + 2 * GIVEN_UP));
        health.failed(start + GIVEN_UP);
        assert!(!health.is_given_up(start + GIVEN_UP));
        assert_eq!(health.failures, 1);
    }
}
