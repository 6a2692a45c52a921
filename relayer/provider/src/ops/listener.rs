use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::{Health, Metrics};

type Shared = (Arc<Health>, Arc<Metrics>);

/// Serves `/healthz`, `/readyz` and `/metrics` until `stop` ends.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(expose))
        .with_state((health, metrics));
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

/// 200 if everything works, else 503; both with the reasons.
async fn ready(State((health, _)): State<Shared>) -> Response {
    let reasons = health.reasons();
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        axum::Json(serde_json::json!({ "ready": ready, "reasons": reasons })),
    )
        .into_response()
}

async fn expose(State((_, metrics)): State<Shared>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], metrics.expose()).into_response()
}
