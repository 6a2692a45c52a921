use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until};

use super::pace::Pace;

impl Pace {
    /// What comes of `future`; none if its time is over first. It must be polled in each turn of the connection's
    /// task, by all that lies between the two: that one sees to the timer afterwards and is what it wakes. The one that an earlier
    /// request has left mostly rings soon enough, and costs nothing then. Without such a task no time is ever over.
    pub(super) fn within<F: Future + Unpin>(&self, limit: Duration, future: F) -> Within<'_, F> {
        Within {
            pace: self,
            limit,
            until: None,
            future,
        }
    }
}

/// What has its time; see [`Pace::within`].
#[derive(Debug)]
pub(super) struct Within<'a, F> {
    pace: &'a Pace,
    limit: Duration,
    /// By the connection's clock, which is read once it is known to wait.
    until: Option<u64>,
    future: F,
}

impl<F: Future + Unpin> Future for Within<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.future).poll(cx) {
            return Poll::Ready(Some(output));
        }
        let (pace, limit) = (self.pace, self.limit);
        let until = *self.until.get_or_insert_with(|| pace.after(limit));
        if !pace.rings_by(until) {
            if pace.after(Duration::ZERO) >= until {
                return Poll::Ready(None);
            }
            pace.need(until);
        }
        Poll::Pending
    }
}

/// A connection's one timer for the deadlines of its requests. It is never put off: that costs more than to let it ring for
/// nothing, which wakes nobody.
#[derive(Debug)]
pub(super) struct Timer {
    /// None before a request has had to wait.
    sleep: Option<Pin<Box<Sleep>>>,
    alarm: Waker,
}

impl Timer {
    pub(super) fn new(pace: &Arc<Pace>) -> Self {
        Self {
            sleep: None,
            alarm: pace.waker(Pace::timer_rang),
        }
    }

    /// Sets it for what is needed. Ready if it has rung: whoever waits is to look again.
    pub(super) fn poll(&mut self, pace: &Pace) -> Poll<()> {
        if pace.is_late() {
            return Poll::Ready(());
        }
        // Noted as set before it is: a ring from here on is not overwritten.
        let Some(at) = pace.to_ring() else {
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        let rung = sleep.as_mut().poll(&mut Context::from_waker(&self.alarm));
        if rung.is_ready() {
            pace.timer_rang();
        }
        rung
    }
}
