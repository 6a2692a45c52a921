use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// What a connection is doing. Counted up at each change, so that a new phase of the same kind is told from the one
/// before; the kind is the rest modulo four.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU32);

const IDLE: u32 = 0;
const HEAD: u32 = 1;
const SERVING: u32 = 2;

impl Phase {
    fn set(&self, kind: u32) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(
            (now / 4).wrapping_add(1).wrapping_mul(4) | kind,
            Ordering::Relaxed,
        );
    }

    /// A request's head is there.
    pub(super) fn serving(&self) {
        self.set(SERVING);
    }

    /// Its answer is given.
    pub(super) fn idle(&self) {
        self.set(IDLE);
    }

    fn bytes_came(&self) {
        if self.0.load(Ordering::Relaxed) % 4 == IDLE {
            self.set(HEAD);
        }
    }
}

/// A stream that notes when a request begins.
#[derive(Debug)]
pub(super) struct Paced<S> {
    inner: S,
    phase: Arc<Phase>,
}

impl<S> Paced<S> {
    pub(super) fn new(inner: S, phase: Arc<Phase>) -> Self {
        Self { inner, phase }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.phase.bytes_came();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

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
    phase: Arc<Phase>,
    limits: Limits,
    seen: u32,
    /// When this phase is over.
    until: Instant,
    /// Rings then, or sooner: moving it for each request costs more than hearing it once for nothing.
    timer: Pin<Box<Sleep>>,
}

impl Overdue {
    pub(super) fn new(phase: Arc<Phase>, limits: Limits) -> Self {
        Self {
            seen: phase.0.load(Ordering::Relaxed),
            phase,
            limits,
            until: Instant::now() + limits.idle,
            timer: Box::pin(sleep(limits.idle)),
        }
    }
}

impl Future for Overdue {
    /// What took too long.
    type Output = &'static str;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<&'static str> {
        let now = self.phase.0.load(Ordering::Relaxed);
        let (limit, what) = match now % 4 {
            HEAD => (self.limits.head, "a request's head did not end in time"),
            SERVING => {
                // The request has its own deadlines.
                self.seen = now;
                return Poll::Pending;
            }
            _ => (self.limits.idle, "no request came"),
        };
        if self.seen != now {
            self.seen = now;
            self.until = Instant::now() + limit;
        }
        let until = self.until;
        if self.timer.deadline() > until {
            self.timer.as_mut().reset(until);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.timer.deadline() >= until {
                return Poll::Ready(what);
            }
            self.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    async fn ready(overdue: &mut Overdue) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *overdue).poll(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn idle_head_and_serving_have_their_own_time() {
        let phase = Arc::new(Phase::default());
        let limits = Limits {
            idle: Duration::from_secs(600),
            head: Duration::from_millis(200),
        };
        let mut overdue = Overdue::new(Arc::clone(&phase), limits);
        phase.bytes_came();
        assert!(!ready(&mut overdue).await);
        phase.serving();
        assert!(!ready(&mut overdue).await);
        sleep(Duration::from_millis(300)).await;
        assert!(!ready(&mut overdue).await, "a request has its own deadline");
        phase.idle();
        assert!(!ready(&mut overdue).await);
        sleep(Duration::from_millis(300)).await;
        assert!(!ready(&mut overdue).await, "between requests there is more time");
        phase.bytes_came();
        assert!(!ready(&mut overdue).await);
        sleep(Duration::from_millis(100)).await;
        // More bytes of the same head give no more time.
        let seen = overdue.seen;
        phase.bytes_came();
        assert!(!ready(&mut overdue).await);
        assert_eq!(overdue.seen, seen);
        let ended = timeout(Duration::from_secs(60), &mut overdue).await;
        assert_eq!(ended, Ok("a request's head did not end in time"));
    }
}
