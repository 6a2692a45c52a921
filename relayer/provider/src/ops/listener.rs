use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::Service as _;

use super::{Health, Metrics};
use crate::unread;

type Shared = (Arc<Health>, Arc<Metrics>);

/// Connections at a time: scrapers and probes need a few, and each takes a file descriptor from the gateway.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request, the next one of a kept connection included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection: who asks and does not read holds no place for ever.
const LIFE: Duration = Duration::from_secs(600);
/// How long open requests may take once told to stop, or when the connection has lived long enough.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves `/healthz`, `/readyz` and `/metrics` until `stop` ends.
pub async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(expose))
        .with_state((health, metrics));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // Beyond the cap a connection is closed at once.
                if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                    let router = router.clone();
                    open.spawn(async move {
                        connection(stream, router).await;
                        drop(place);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    // Kept connections without a request end by their deadline otherwise; they need not be waited for.
    let all = async { while open.join_next().await.is_some() {} };
    if timeout(DRAIN, all).await.is_err() {
        open.abort_all();
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut router = router.clone();
        unread::answered(request.map(Body::new), async move |request| {
            router.call(request).await
        })
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let serving = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = match timeout(LIFE, serving.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            // The answer under way goes out whole, if somebody reads it.
            serving.as_mut().graceful_shutdown();
            timeout(DRAIN, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection for health or metrics ended");
    }
}

/// 200 if nothing keeps the daemon from its work, else 503; both with what is wrong.
async fn ready(State((health, _)): State<Shared>) -> Response {
    let readiness = health.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, axum::Json(readiness)).into_response()
}

async fn expose(State((_, metrics)): State<Shared>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], metrics.expose()).into_response()
}
