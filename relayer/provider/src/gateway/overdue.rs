use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::pace::{Doing, Pace};

/// How long a connection may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Without a request.
    pub(super) idle: Duration,
    /// From a request's first byte to the end of its head.
    pub(super) head: Duration,
}

/// Whose time is over: ends once the connection has been idle, or busy with one request's head, for too long. It is
/// polled in the connection's own task, so that a change of phase costs no wake-up.
#[derive(Debug)]
pub(super) struct Overdue {
    limits: Limits,
    seen: u32,
    /// When this phase is over.
    until: Instant,
    /// When the timer rings: then, or sooner. Moving it for each request costs more than hearing it once for nothing.
    rings: Instant,
    /// It may have rung since it was last looked at.
    rung: bool,
    timer: Pin<Box<Sleep>>,
}

impl Overdue {
    pub(super) fn new(pace: &Pace, limits: Limits) -> Self {
        let until = Instant::now() + limits.idle;
        Self {
            limits,
            seen: pace.phase().0,
            until,
            rings: until,
            rung: true,
            timer: Box::pin(sleep_until(until)),
        }
    }

    /// What took too long. The timer, which wakes `bell`, is looked at if it may have `rung`, and is left alone while a request
    /// is answered: that has its own deadlines.
    pub(super) fn poll(&mut self, pace: &Pace, rung: bool, bell: &Waker) -> Poll<&'static str> {
        let (now, doing) = pace.phase();
        if rung {
            self.rung = true;
        }
        let (limit, what) = match doing {
            Doing::Serving => return Poll::Pending,
            Doing::Head => (self.limits.head, "a request's head did not end in time"),
            Doing::Idle => (self.limits.idle, "no request came"),
        };
        if self.seen != now {
            self.seen = now;
            self.until = Instant::now() + limit;
        }
        let until = self.until;
        if self.rings > until {
            self.move_to(until);
        }
        if !self.rung {
            return Poll::Pending;
        }
        let cx = &mut Context::from_waker(bell);
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.rings >= until {
                return Poll::Ready(what);
            }
            self.move_to(until);
        }
        self.rung = false;
        Poll::Pending
    }

    fn move_to(&mut self, until: Instant) {
        self.rings = until;
        self.rung = true;
        self.timer.as_mut().reset(until);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{sleep, timeout};

    use super::*;

    async fn ready(overdue: &mut Overdue, pace: &Pace, rung: bool) -> bool {
        poll_fn(|cx| Poll::Ready(overdue.poll(pace, rung, cx.waker()).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn idle_head_and_serving_have_their_own_time() {
        let pace = Pace::default();
        let limits = Limits {
            idle: Duration::from_secs(600),
            head: Duration::from_millis(200),
        };
        let mut overdue = Overdue::new(&pace, limits);
        pace.bytes_came();
        assert!(!ready(&mut overdue, &pace, true).await);
        pace.serving();
        assert!(!ready(&mut overdue, &pace, true).await);
        sleep(Duration::from_millis(300)).await;
        // It rings meanwhile.
        assert!(
            !ready(&mut overdue, &pace, true).await,
            "a request has its own deadline"
        );
        pace.idle();
        assert!(!ready(&mut overdue, &pace, false).await);
        sleep(Duration::from_millis(300)).await;
        assert!(
            !ready(&mut overdue, &pace, false).await,
            "between requests there is more time"
        );
        pace.bytes_came();
        assert!(!ready(&mut overdue, &pace, false).await);
        sleep(Duration::from_millis(100)).await;
        // More bytes of the same head give no more time.
        let seen = overdue.seen;
        pace.bytes_came();
        assert!(!ready(&mut overdue, &pace, false).await);
        assert_eq!(overdue.seen, seen);
        let over = poll_fn(|cx| overdue.poll(&pace, true, cx.waker()));
        let ended = timeout(Duration::from_secs(60), over).await;
        assert_eq!(ended, Ok("a request's head did not end in time"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ring_while_a_request_is_answered_is_not_forgotten() {
        let pace = Pace::default();
        let idle = Duration::from_secs(10);
        let mut overdue = Overdue::new(&pace, Limits { idle, head: idle });
        assert!(!ready(&mut overdue, &pace, true).await);
        pace.serving();
        sleep(idle * 2).await;
        assert!(!ready(&mut overdue, &pace, true).await);
        pace.idle();
        let began = Instant::now();
        // No more is heard of the ring from here on: the timer was set anew.
        let mut rung = false;
        let over = poll_fn(|cx| overdue.poll(&pace, std::mem::replace(&mut rung, true), cx.waker()));
        assert_eq!(timeout(idle * 3, over).await, Ok("no request came"));
        assert!((idle..idle * 2).contains(&began.elapsed()));
    }
}
