//! What a request still sends when its answer is known already.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

/// How much of a body that nobody wants is read and thrown away. A client that still sends when the answer comes mostly
/// never reads it; up to here it gets to know why.
pub(crate) const DISCARD: usize = 16 * 1024 * 1024;
/// The same of one that has taken too long: who sends slowly has little under way, whatever its
/// length says. One whose link was away may have more, and then not read why: it tries again all the same.
const LATE: usize = 64 * 1024;
/// How long that may take.
const WITHIN: Duration = Duration::from_secs(1);

/// A body that two hold: who answers, and who reads the rest.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    body: Body,
    /// Bytes of it that have come.
    read: usize,
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let inner = &mut *self.inner();
        let frame = ready!(Pin::new(&mut inner.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            inner.read = inner.read.saturating_add(length);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner().body.size_hint()
    }
}

/// How much of a body is still read and thrown away, by how its request is answered.
pub(crate) fn discarded(answer: StatusCode) -> usize {
    if answer == StatusCode::REQUEST_TIMEOUT {
        LATE
    } else {
        DISCARD
    }
}

/// Has `run` answer the request, and reads what is left of its body before the answer goes out: the HTTP layer closes a
/// connection whose request it has not read to its end, and a client that sends meanwhile sees a broken connection in
/// place of the answer.
pub(crate) async fn answered(
    request: Request,
    run: impl AsyncFnOnce(Request) -> Result<Response, Infallible>,
) -> Result<Response, Infallible> {
    if request.body().is_end_stream() {
        return run(request).await;
    }
    // Who waits for leave to send gets the answer instead.
    let waits = request.headers().contains_key(EXPECT);
    let announced = request.body().size_hint().lower();
    let (head, body) = request.into_parts();
    let shared = Shared(Arc::new(Mutex::new(Inner { body, read: 0 })));
    let answer = run(Request::from_parts(head, Body::new(shared.clone()))).await?;
    if !waits && announced <= DISCARD as u64 {
        let left = DISCARD.checked_sub(shared.inner().read);
        if let Some(left) = left {
            let most = left.min(discarded(answer.status()));
            Box::pin(throw_away(shared, most)).await;
        }
    }
    Ok(answer)
}

/// Reads what is left of a body that nobody wants, within `most` bytes and [`WITHIN`].
pub(crate) async fn throw_away(mut body: impl HttpBody<Data = Bytes> + Unpin, most: usize) {
    let mut read: usize = 0;
    let all = async {
        while read <= most
            && let Some(Ok(frame)) = body.frame().await
        {
            read = read.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    // Whoever is slower than that gets the answer all the same.
    drop(timeout(WITHIN, all).await);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::response::IntoResponse as _;
    use futures_util::stream;
    use tokio::time::Instant;

    use super::*;

    const PIECE: usize = 16 * 1024;

    /// How much is taken of a body without an end that nobody wants, as its request is answered so.
    async fn taken(status: StatusCode) -> usize {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let body = stream::repeat_with(move || {
            counted.fetch_add(PIECE, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from_static(&[0; PIECE]))
        });
        let request = Request::new(Body::from_stream(body));
        let answer = answered(request, async |_| Ok(status.into_response())).await;
        assert_eq!(answer.map(|a| a.status()), Ok(status));
        count.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_body_that_comes_too_late_little_more_is_read_and_for_a_moment_only() {
        let late = taken(StatusCode::REQUEST_TIMEOUT).await;
        assert!((LATE..=LATE + 2 * PIECE).contains(&late), "{late}");
        let unwanted = taken(StatusCode::FORBIDDEN).await;
        assert!((DISCARD..=DISCARD + 2 * PIECE).contains(&unwanted), "{unwanted}");
        // Nor is one waited for of which nothing comes.
        let began = Instant::now();
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let answer = answered(Request::new(silent), async |_| {
            Ok(StatusCode::REQUEST_TIMEOUT.into_response())
        });
        assert!(answer.await.is_ok());
        assert!((WITHIN..WITHIN * 2).contains(&began.elapsed()));
    }
}
