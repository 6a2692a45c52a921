use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::deadline::Timer;
use super::overdue::{Limits, Overdue};
use super::pace::Pace;

/// Comes when a connection is told something from outside.
pub(super) type Word<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What there is to know beside what a connection's other end says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News<T> {
    /// It took too long, and with what.
    Overdue(&'static str),
    /// The time of a request may be over: it is to be polled.
    Late,
    /// That was said from outside.
    Word(T),
}

/// What a connection's task looks at after each turn of what it serves. Of all this only one line of memory is touched
/// where nothing has rung: it is polled by wakers of its own, not by the task's.
pub(super) struct Beside<'a, T> {
    pace: Arc<Pace>,
    bell: Waker,
    overdue: Overdue,
    deadline: Timer,
    words: Vec<Word<'a, T>>,
}

impl<'a, T> Beside<'a, T> {
    pub(super) fn new(pace: Arc<Pace>, limits: Limits, words: Vec<Word<'a, T>>) -> Self {
        Self {
            bell: pace.waker(Pace::ring),
            overdue: Overdue::new(&pace, limits),
            deadline: Timer::new(&pace),
            pace,
            words,
        }
    }

    /// The next of the news. After each the task asks again, before it rests.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<News<T>> {
        let rung = self.pace.has_rung(cx.waker());
        if let Poll::Ready(what) = self.overdue.poll(&self.pace, rung, &self.bell) {
            return Poll::Ready(News::Overdue(what));
        }
        if rung && let Some(word) = self.word() {
            // Those behind it have not been asked.
            self.pace.again();
            return Poll::Ready(News::Word(word));
        }
        self.deadline.poll(&self.pace).map(|()| News::Late)
    }

    /// The first that has come; each comes once.
    fn word(&mut self) -> Option<T> {
        let cx = &mut Context::from_waker(&self.bell);
        let mut all = self.words.iter_mut().enumerate();
        let (at, word) = all.find_map(|(at, word)| match word.as_mut().poll(cx) {
            Poll::Ready(word) => Some((at, word)),
            Poll::Pending => None,
        })?;
        drop(self.words.remove(at));
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    use super::super::woken::Woken;
    use super::*;

    const LIMITS: Limits = Limits {
        idle: Duration::from_secs(600),
        head: Duration::from_secs(5),
    };

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn connection() -> (Arc<Pace>, Beside<'static, u8>) {
        let pace = Arc::new(Pace::default());
        (Arc::clone(&pace), Beside::new(pace, LIMITS, Vec::new()))
    }

    /// What comes of a request and how long that took, on a connection that looks after it as a connection's task does.
    async fn served<F: Future>(
        (pace, beside): (&Pace, &mut Beside<'_, u8>),
        request: F,
    ) -> (F::Output, Duration) {
        let began = Instant::now();
        let mut request = pin!(request);
        pace.serving();
        loop {
            tokio::select! {
                biased;
                output = request.as_mut() => {
                    pace.idle();
                    return (output, began.elapsed());
                }
                news = poll_fn(|cx| beside.poll(cx)) => assert_eq!(news, News::Late),
            }
        }
    }

    /// Waits for so long.
    async fn wait(pace: &Pace, limit: Duration, needs: Duration) -> Option<()> {
        pace.within(limit, pin!(sleep(needs))).await
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_one_connection_have_each_their_own_time() {
        let (pace, mut beside) = connection();
        let pace = &*pace;
        // Limit, what it needs, and in how many seconds it has ended: a shorter limit than the one before, a longer one that the
        // timer rings in for nothing, one that is met just in time, others while the timer is set already.
        for (limit, needs, took) in [
            (20, 1, 1),
            (20, 1_000, 20),
            (20, 2, 2),
            (5, 1_000, 5),
            (30, 1, 1),
            (30, 29, 29),
            (140, 1_000, 140),
            (10, 9, 9),
            (10, 1_000, 10),
            (10, 0, 0),
        ] {
            let (ended, after) =
                served((pace, &mut beside), wait(pace, seconds(limit), seconds(needs))).await;
            assert_eq!(ended.is_some(), needs < limit, "{limit} {needs}");
            let exactly = seconds(took)..seconds(took) + Duration::from_millis(10);
            assert!(exactly.contains(&after), "{limit} {needs}: {after:?}");
        }
        let never = async { pace.within(seconds(10), pin!(pending::<()>())).await };
        assert_eq!(served((pace, &mut beside), never).await.0, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_and_the_whole_request_have_their_own_time() {
        let (pace, mut beside) = connection();
        let pace = &*pace;
        for (body, rest, told) in [
            (11, 0, (Some(None), 10)),
            (9, 5, (Some(Some(())), 14)),
            (9, 100, (None, 20)),
        ] {
            let request = async {
                let whole = async {
                    wait(pace, seconds(10), seconds(body)).await?;
                    sleep(seconds(rest)).await;
                    Some(())
                };
                pace.within(seconds(20), pin!(whole)).await
            };
            let (ended, after) = served((pace, &mut beside), request).await;
            assert_eq!((ended, after.as_secs()), told);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_no_request_needs_any_more_wakes_nobody() {
        let (pace, mut beside) = connection();
        let pace = &*pace;
        let ended = served((pace, &mut beside), wait(pace, seconds(20), seconds(1))).await;
        assert_eq!(ended.0, Some(()));
        let woken = Arc::new(Woken::default());
        let task = Waker::from(Arc::clone(&woken));
        assert!(beside.poll(&Context::from_waker(&task)).is_pending());
        sleep(seconds(60)).await;
        assert_eq!(woken.count(), 0);
        let never = wait(pace, seconds(5), seconds(100));
        let (ended, after) = served((pace, &mut beside), never).await;
        assert_eq!((ended, after.as_secs()), (None, 5));
        // The connection has its own time all the same.
        let began = Instant::now();
        let news = loop {
            match poll_fn(|cx| beside.poll(cx)).await {
                News::Late => {}
                news => break news,
            }
        };
        assert_eq!(news, News::Overdue("no request came"));
        assert_eq!(began.elapsed().as_secs(), LIMITS.idle.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_from_outside_is_polled_when_it_has_rung_and_each_comes_once() {
        let polled = Arc::new(AtomicU32::new(0));
        let bell: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (count, kept) = (Arc::clone(&polled), Arc::clone(&bell));
        let counted: Word<'static, u8> = Box::pin(poll_fn(move |cx| {
            count.fetch_add(1, Ordering::Relaxed);
            *kept.lock().unwrap() = Some(cx.waker().clone());
            Poll::<u8>::Pending
        }));
        let ((say, first), (say_too, second)) = (oneshot::channel(), oneshot::channel());
        let of = |said: oneshot::Receiver<u8>| -> Word<'static, u8> {
            Box::pin(async move { said.await.unwrap() })
        };
        let pace = Arc::new(Pace::default());
        let words = vec![of(first), counted, of(second)];
        let mut beside = Beside::new(Arc::clone(&pace), LIMITS, words);
        let woken: Arc<Woken> = Arc::default();
        let task = Waker::from(Arc::clone(&woken));
        let cx = &Context::from_waker(&task);
        for _ in 0..3 {
            assert!(beside.poll(cx).is_pending());
        }
        assert_eq!(polled.load(Ordering::Relaxed), 1);
        let ring = bell.lock().unwrap().take().unwrap();
        ring.wake();
        assert_eq!(woken.count(), 1);
        for _ in 0..3 {
            assert!(beside.poll(cx).is_pending());
        }
        assert_eq!(polled.load(Ordering::Relaxed), 2);
        // Both at once; a request that is being answered delays neither.
        pace.serving();
        say.send(1).unwrap();
        say_too.send(2).unwrap();
        assert_eq!(woken.count(), 2);
        assert_eq!(beside.poll(cx), Poll::Ready(News::Word(1)));
        assert_eq!(beside.poll(cx), Poll::Ready(News::Word(2)));
        assert!(beside.poll(cx).is_pending());
    }
}
