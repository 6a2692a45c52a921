use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::pace::Pace;

/// Polls of one task, one after the other, before others have their turn.
const AT_ONCE: usize = 2;

/// Polls what a connection serves. The HTTP layer wakes its own task whenever a request takes its body, also where nothing
/// more is to come: behind hundreds of other connections, all that it touches would have gone cold by then. What is woken
/// while it is polled is polled again at once instead.
#[derive(Debug)]
pub(super) struct Turns {
    pace: Arc<Pace>,
    waker: Waker,
}

impl Turns {
    pub(super) fn new(pace: &Arc<Pace>) -> Self {
        Self {
            pace: Arc::clone(pace),
            waker: Waker::from(Arc::clone(pace)),
        }
    }

    /// A turn of `serving`, in the connection's task.
    pub(super) fn poll<F: Future>(&self, mut serving: Pin<&mut F>, cx: &Context<'_>) -> Poll<F::Output> {
        for _ in 0..AT_ONCE {
            self.pace.turn(cx.waker());
            let polled = serving.as_mut().poll(&mut Context::from_waker(&self.waker));
            if !self.pace.turned() || polled.is_ready() {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::super::woken::Woken;
    use super::*;

    #[test]
    fn what_is_woken_while_it_is_polled_is_polled_again_and_who_yields_all_the_time_waits_for_others() {
        let pace = Arc::new(Pace::default());
        let turns = Turns::new(&pace);
        let woken: Arc<Woken> = Arc::default();
        let task = Waker::from(Arc::clone(&woken));
        let wakes = || woken.count();
        let cx = &Context::from_waker(&task);
        // So many more times it wakes itself.
        let (mut selves, mut polls, mut kept) = (0, 0, None);
        for (of, polled, woke) in [(0, 1, 0), (1, 2, 0), (2, 2, 1), (9, 2, 1), (0, 1, 0)] {
            (selves, polls) = (of, 0);
            let before = wakes();
            let serving = pin!(poll_fn(|cx| {
                polls += 1;
                kept = Some(cx.waker().clone());
                if selves > 0 {
                    selves -= 1;
                    cx.waker().wake_by_ref();
                }
                Poll::<()>::Pending
            }));
            assert!(turns.poll(serving, cx).is_pending());
            assert_eq!((polls, wakes() - before), (polled, woke), "{of}");
        }
        // From outside it is woken as ever, by whatever waker it has kept.
        let before = wakes();
        kept.take().unwrap().wake();
        assert_eq!(wakes() - before, 1);
        assert_eq!(turns.poll(pin!(poll_fn(|_| Poll::Ready(7))), cx), Poll::Ready(7));
        assert_eq!((selves, polls, wakes() - before), (0, 1, 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_that_wakes_it_from_another_thread_is_lost() {
        for _ in 0..20_000 {
            let (say, mut said) = tokio::sync::oneshot::channel();
            let pace = Arc::new(Pace::default());
            let turns = Turns::new(&pace);
            let other = tokio::spawn(async move { say.send(()) });
            poll_fn(|cx| turns.poll(Pin::new(&mut said), cx)).await.unwrap();
            other.await.unwrap().unwrap();
        }
    }
}
