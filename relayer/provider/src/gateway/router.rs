use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hpc_schema::code::Code;
use hpc_schema::gateway::REGISTER_PATH;
use hpc_schema::refusal::Refusal;
use tokio::time::timeout;
use tower::Service as _;

use super::answer::Failure;
use super::connection::Connection;
use super::{Gateway, body, certificate, heartbeat, register, tasks};
use crate::clock;
use crate::ops::RequestLabels;

const MAX_HEADERS: usize = 64;
/// How long the rest of a refused request is read.
const DISCARD_WITHIN: Duration = Duration::from_secs(1);
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Every path of the agents.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route(REGISTER_PATH, post(register::register))
        .route(
            "/api/v1/hpc/nodes/{node_id}/heartbeat",
            post(heartbeat::heartbeat),
        )
        .route(
            "/api/v1/hpc/nodes/{node_id}/certificate",
            post(certificate::renew),
        )
        .route(
            "/api/v1/hpc/nodes/{node_id}/certificate/challenge",
            post(certificate::challenge),
        )
        .route(
            "/api/v1/hpc/nodes/{node_id}/certificate/recover",
            post(certificate::recover),
        )
        .route("/internal/v1/nodes/{node_id}/tasks/wait", get(tasks::wait))
        .route(
            "/internal/v1/nodes/{node_id}/tasks/{task_id}/result",
            post(tasks::result),
        )
        .route(
            "/internal/v1/nodes/{node_id}/tasks/{task_id}/progress",
            post(tasks::progress),
        )
        .fallback(|| async { Failure::new(404, Refusal::whole(Code::Malformed, "there is no such path")) })
        .method_not_allowed_fallback(|| async {
            Failure::new(
                405,
                Refusal::whole(Code::Malformed, "this path takes another method"),
            )
        })
        .layer(from_fn_with_state(Arc::clone(&gateway), guard))
        .with_state(gateway)
}

/// Answers one request of a connection. Heartbeats, which are nearly all there is, take the short way; all else goes
/// through the router.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    mut router: Router,
    connection: Connection,
    mut request: Request,
) -> Response {
    if let Some(node) = heartbeat_of(&request) {
        let receive = async |request| {
            heartbeat::receive(gateway, &connection, &node, request)
                .await
                .into_response()
        };
        return guarded(gateway, &connection, "heartbeat", request, receive).await;
    }
    request.extensions_mut().insert(connection);
    match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The node whose heartbeat this is, as it stands in the path; none if the router has to look closer.
fn heartbeat_of(request: &Request) -> Option<String> {
    if request.method() != Method::POST {
        return None;
    }
    let rest = request.uri().path().strip_prefix("/api/v1/hpc/nodes/")?;
    let node = rest.strip_suffix("/heartbeat")?;
    let plain = !node.is_empty() && !node.contains(['/', '%']);
    plain.then(|| node.to_owned())
}

async fn guard(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let route = route_name(&request);
    guarded(&gateway, &connection, route, request, async |request| {
        next.run(request).await
    })
    .await
}

/// Rate limit, deadline and counters of every request.
async fn guarded(
    gateway: &Gateway,
    connection: &Connection,
    route: &'static str,
    request: Request,
    run: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let admitted = admit(gateway, connection, route).and_then(|()| bounded(request.headers()));
    let mut response = match admitted {
        Err(failure) => {
            body::discard(request, DISCARD_WITHIN).await;
            failure.into_response()
        }
        Ok(()) => {
            // Once for the body, once for the answer.
            let mut within = gateway.live.get().gateway.request_timeout.duration() * 2;
            if route == "tasks_wait" {
                within += tasks::LONGEST_WAIT;
            }
            timeout(within, run(request))
                .await
                .unwrap_or_else(|_| Failure::unavailable(5, "the gateway is overloaded").into_response())
        }
    };
    if closes(connection, response.status()) {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let labels = RequestLabels {
        route,
        status: response.status().as_u16(),
    };
    gateway.metrics.requests.get_or_create(&labels).inc();
    response
}

fn admit(gateway: &Gateway, connection: &Connection, route: &str) -> Result<(), Failure> {
    let now = clock::now_ms();
    let taken = match &connection.peer {
        Some(peer) if route.starts_with("task") => gateway
            .working
            .take((peer.cluster_id.clone(), peer.node_id.clone()), now),
        Some(peer) => gateway
            .nodes
            .take((peer.cluster_id.clone(), peer.node_id.clone()), now),
        None => gateway.anonymous.take(connection.ip(), now),
    };
    taken.map_err(|wait| {
        gateway.log_once(connection.ip(), "more requests than it may make");
        Failure::rate_limited(wait.as_secs().max(1))
    })
}

/// More than this gets no answer but the bare status of the HTTP layer, which has its own limits.
fn bounded(headers: &HeaderMap) -> Result<(), Failure> {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if headers.len() <= MAX_HEADERS && bytes <= MAX_HEADER_BYTES {
        return Ok(());
    }
    let what = format!("the head has more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes");
    Err(Failure::new(431, Refusal::whole(Code::BodyTooLarge, what)))
}

/// Whether the connection ends with this answer: who has no certificate gets no second try on it, and who asks too
/// much or shows a certificate that counts no more, neither.
fn closes(connection: &Connection, status: StatusCode) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => true,
        _ => connection.peer.is_none() && !status.is_success(),
    }
}

/// The route without ids: labels of metrics must stay few.
fn route_name(request: &Request) -> &'static str {
    match request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
        Some(REGISTER_PATH) => "register",
        Some(path) if path.ends_with("/heartbeat") => "heartbeat",
        Some(path) if path.ends_with("/challenge") => "challenge",
        Some(path) if path.ends_with("/recover") => "recover",
        Some(path) if path.ends_with("/certificate") => "certificate",
        Some(path) if path.ends_with("/tasks/wait") => "tasks_wait",
        Some(path) if path.ends_with("/result") => "task_result",
        Some(path) if path.ends_with("/progress") => "task_progress",
        _ => "other",
    }
}
