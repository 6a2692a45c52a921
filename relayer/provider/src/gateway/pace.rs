use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What a connection's task, the request that it serves and what wakes it tell one another: one line of memory, beside the
/// counters of whoever shares it, for with thousands of connections each line is cold whenever the turn of one comes.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pace {
    /// What the connection is doing. Counted up at each change, so that a new phase of the same kind is told from the one
    /// before; the kind is the rest modulo four.
    phase: AtomicU32,
    /// Whether something that is polled only when it has rung is to be polled.
    rung: AtomicBool,
    /// Whether the timer for the requests' deadlines has rung for a request.
    late: AtomicBool,
    /// Whether what the connection serves is being polled.
    polled: AtomicBool,
    /// Whether that has been woken since.
    woken: AtomicBool,
    /// The connection's.
    task: AtomicWaker,
    /// When that timer rings, in nanoseconds since `start`.
    rings: AtomicU64,
    /// When a request that waits needs it, since the task last looked.
    needed: AtomicU64,
    start: Instant,
}

const IDLE: u32 = 0;
const HEAD: u32 = 1;
const SERVING: u32 = 2;

/// No time at all.
const NEVER: u64 = u64::MAX;

/// The kind of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// No request has begun.
    Idle,
    /// A request's head is coming.
    Head,
    /// A request is being answered.
    Serving,
}

impl Default for Pace {
    /// Idle, with all that it hears of still to be polled.
    fn default() -> Self {
        Self {
            phase: AtomicU32::new(IDLE),
            rung: AtomicBool::new(true),
            late: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            task: AtomicWaker::new(),
            rings: AtomicU64::new(NEVER),
            needed: AtomicU64::new(NEVER),
            start: Instant::now(),
        }
    }
}

impl Pace {
    fn set(&self, kind: u32) {
        let now = self.phase.load(Ordering::Relaxed);
        // In one order with `rings`: the timer that wakes nobody, as no request is there, is missed by none that comes.
        self.phase
            .store((now / 4).wrapping_add(1).wrapping_mul(4) | kind, Ordering::SeqCst);
    }

    /// A request's head is there.
    pub(super) fn serving(&self) {
        self.set(SERVING);
    }

    /// Its answer is given.
    pub(super) fn idle(&self) {
        self.set(IDLE);
    }

    /// Bytes of the other end have come.
    pub(super) fn bytes_came(&self) {
        if self.phase.load(Ordering::Relaxed) % 4 == IDLE {
            self.set(HEAD);
        }
    }

    /// The phase by its number, and its kind.
    pub(super) fn phase(&self) -> (u32, Doing) {
        let phase = self.phase.load(Ordering::Relaxed);
        let doing = match phase % 4 {
            HEAD => Doing::Head,
            SERVING => Doing::Serving,
            _ => Doing::Idle,
        };
        (phase, doing)
    }

    /// A turn of what the connection serves begins; what wakes it wakes `task` from here on.
    pub(super) fn turn(&self, task: &Waker) {
        self.task.register(task);
        self.polled.store(true, Ordering::SeqCst);
        // Swapped, here and by who wakes: what they have written before is seen by the poll that follows.
        self.woken.swap(false, Ordering::SeqCst);
    }

    /// The turn ends. Whether it was woken meanwhile: nobody else has heard of it.
    pub(super) fn turned(&self) -> bool {
        // In this order, as `wake` has the other: one of the two sees it.
        self.polled.store(false, Ordering::SeqCst);
        self.woken.load(Ordering::SeqCst)
    }

    /// Has what is polled only when it has rung polled once more, by a task that runs now.
    pub(super) fn again(&self) {
        // Swapped: of two that ring, whoever asks sees what both have written.
        self.rung.swap(true, Ordering::AcqRel);
    }

    /// Has it polled, and wakes the task for it.
    pub(super) fn ring(&self) {
        self.again();
        self.task.wake();
    }

    /// Whether something has rung since this was last asked, or is to be polled for the first time. The next ring wakes `task`,
    /// whoever asked before.
    pub(super) fn has_rung(&self, task: &Waker) -> bool {
        // First, or a ring in between would wake nobody.
        self.task.register(task);
        self.rung.load(Ordering::Acquire) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// The time so long from now.
    pub(super) fn after(&self, limit: Duration) -> u64 {
        let since = self.start.elapsed().saturating_add(limit);
        u64::try_from(since.as_nanos()).unwrap_or(NEVER).min(NEVER - 1)
    }

    /// Whether the timer rings before `until`, or then. Whoever waits is polled when it has rung.
    pub(super) fn rings_by(&self, until: u64) -> bool {
        self.rings.load(Ordering::SeqCst) <= until
    }

    /// Has the task, which looks after each turn of the request, see to it that the timer rings then at the latest.
    pub(super) fn need(&self, until: u64) {
        if until < self.needed.load(Ordering::Relaxed) {
            self.needed.store(until, Ordering::Relaxed);
        }
    }

    /// When the timer, which rings later or not at all, is to ring; it is taken to be set.
    pub(super) fn to_ring(&self) -> Option<Instant> {
        let needed = self.needed.load(Ordering::Relaxed);
        if needed == NEVER {
            return None;
        }
        self.needed.store(NEVER, Ordering::Relaxed);
        if self.rings_by(needed) {
            return None;
        }
        self.rings.store(needed, Ordering::SeqCst);
        Some(self.start + Duration::from_nanos(needed))
    }

    /// The timer has rung. Mostly no request waits by then: nobody is woken for nothing.
    pub(super) fn timer_rang(&self) {
        self.rings.store(NEVER, Ordering::SeqCst);
        if self.phase.load(Ordering::SeqCst) % 4 == SERVING {
            // The task may be running, past its request already.
            self.late.store(true, Ordering::Release);
            self.task.wake();
        }
    }

    /// Whether the timer has rung for a request since this was last asked; after [`Self::has_rung`], which says whom it wakes.
    pub(super) fn is_late(&self) -> bool {
        self.late.load(Ordering::Acquire) && self.late.swap(false, Ordering::AcqRel)
    }

    /// A waker that has this done.
    pub(super) fn waker(self: &Arc<Self>, call: fn(&Self)) -> Waker {
        let pace = Arc::clone(self);
        Waker::from(Arc::new(Call { pace, call }))
    }
}

struct Call {
    pace: Arc<Pace>,
    call: fn(&Pace),
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        (self.call)(&self.pace);
    }
}

/// Wakes what the connection serves. While that is being polled it is no affair of the runtime's: see [`Turns`].
///
/// [`Turns`]: super::turns::Turns
impl Wake for Pace {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.swap(true, Ordering::SeqCst);
        if !self.polled.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

/// A stream that notes when a request begins.
#[derive(Debug)]
pub(super) struct Paced<S> {
    inner: S,
    pace: Arc<Pace>,
}

impl<S> Paced<S> {
    pub(super) fn new(inner: S, pace: Arc<Pace>) -> Self {
        Self { inner, pace }
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
            self.pace.bytes_came();
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

#[cfg(test)]
mod tests {
    use super::super::woken::Woken;
    use super::*;

    #[test]
    fn a_ring_is_heard_once_and_wakes_whoever_asked_last() {
        assert_eq!(size_of::<Pace>(), 64);
        let pace = Arc::new(Pace::default());
        let woken: [Arc<Woken>; 2] = Default::default();
        let count = || [0, 1].map(|i: usize| woken[i].count());
        let [first, second] = [0, 1].map(|i: usize| Waker::from(Arc::clone(&woken[i])));
        assert!(pace.has_rung(&first), "at first all is polled");
        assert!(!pace.has_rung(&second));
        pace.ring();
        pace.ring();
        assert_eq!(count(), [0, 1]);
        assert!(pace.has_rung(&first));
        assert!(!pace.has_rung(&first));
        pace.ring();
        assert_eq!(count(), [1, 1]);
        assert!(pace.has_rung(&second));
    }

    #[test]
    fn the_timer_wakes_the_task_only_while_a_request_is_there() {
        let (pace, woken) = (Pace::default(), Arc::new(Woken::default()));
        let task = Waker::from(Arc::clone(&woken));
        assert!(pace.has_rung(&task));
        pace.timer_rang();
        assert_eq!(woken.count(), 0);
        assert!(!pace.is_late());
        pace.serving();
        pace.timer_rang();
        assert_eq!(woken.count(), 1);
        // Again, while the task that it has woken runs.
        pace.timer_rang();
        assert!(!pace.has_rung(&task), "nothing else is polled for it");
        assert!(pace.is_late() && !pace.is_late());
        // What needs it at the same time, or later, needs nothing more.
        let (sooner, later) = (Duration::from_secs(5), Duration::from_secs(20));
        let until = pace.after(later);
        pace.need(until);
        pace.need(pace.after(later * 2));
        assert!(pace.to_ring().is_some());
        assert!(pace.rings_by(until) && !pace.rings_by(pace.after(sooner)));
        pace.need(pace.after(later * 2));
        assert_eq!(pace.to_ring(), None);
        pace.need(pace.after(sooner));
        assert!(pace.to_ring().is_some());
    }
}
