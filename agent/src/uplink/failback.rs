//! Back to the preferred gateway once it answers again. It is looked for beside the heartbeats, which never wait for
//! it; one that comes and goes is tried ever more rarely.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::connect::Connection;

/// The longest pause between two looks at it.
const LONGEST: Duration = Duration::from_secs(3600);

/// When to look for the preferred gateway, and the look that is under way.
#[derive(Debug)]
pub(super) struct FailBack {
    first: Duration,
    pause: Duration,
    next: Option<Instant>,
    returned: Option<Instant>,
    look: Option<JoinHandle<Option<Connection>>>,
}

impl FailBack {
    /// First look after `first`.
    pub(super) fn new(first: Duration) -> Self {
        Self {
            first,
            pause: first,
            next: None,
            returned: None,
            look: None,
        }
    }

    /// The preferred gateway has failed. Soon after a return that means: twice as long until the next one.
    pub(super) fn left(&mut self, now: Instant) {
        let soon = |at: Instant| now.saturating_duration_since(at) < self.pause.saturating_mul(2);
        self.pause = if self.returned.take().is_some_and(soon) {
            self.pause.saturating_mul(2).min(LONGEST)
        } else {
            self.first
        };
        self.next = now.checked_add(self.pause);
    }

    /// Whether it is time for a look; the next one is then a pause later.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.look.is_none() && self.next.is_some_and(|at| now >= at);
        if due {
            self.next = now.checked_add(self.pause);
        }
        due
    }

    /// A connection to it is being opened.
    pub(super) fn looking(&mut self, look: JoinHandle<Option<Connection>>) {
        self.look = Some(look);
    }

    /// The connection, if the look has found one. Does not wait.
    pub(super) async fn found(&mut self, now: Instant) -> Option<Connection> {
        let look = self.look.take_if(|l| l.is_finished())?;
        let connection = look.await.ok().flatten().filter(|c| !c.is_closed())?;
        self.returned = Some(now);
        self.next = None;
        Some(connection)
    }

    /// Other gateways, or another certificate.
    pub(super) fn reset(&mut self) {
        if let Some(look) = self.look.take() {
            look.abort();
        }
    }
}

impl Drop for FailBack {
    fn drop(&mut self) {
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_comes_and_goes_is_tried_ever_more_rarely() {
        let minute = Duration::from_secs(60);
        let mut now = Instant::now();
        let mut f = FailBack::new(minute);
        assert!(!f.is_due(now), "nothing has failed");
        let mut pauses = Vec::new();
        for _ in 0..8 {
            f.left(now);
            let from = now;
            while !f.is_due(now) {
                now += Duration::from_secs(30);
            }
            assert!(!f.is_due(now), "one look at a time");
            pauses.push((now - from).as_secs() / 60);
            f.returned = Some(now);
            now += Duration::from_secs(30);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        // It held for long: the first pause again.
        now += Duration::from_secs(3 * 3600);
        f.left(now);
        assert!(f.is_due(now + minute));
    }
}
