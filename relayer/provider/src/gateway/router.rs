use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use hpc_schema::code::Code;
use hpc_schema::gateway::REGISTER_PATH;
use hpc_schema::refusal::Refusal;
use tokio::time::timeout;

use super::answer::Failure;
use super::connection::Connection;
use super::{Gateway, certificate, heartbeat, register};
use crate::clock;
use crate::ops::RequestLabels;

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
        .fallback(|| async { Failure::new(404, Refusal::whole(Code::Malformed, "there is no such path")) })
        .method_not_allowed_fallback(|| async {
            Failure::new(405, Refusal::whole(Code::Malformed, "this path takes POST only"))
        })
        .layer(from_fn_with_state(Arc::clone(&gateway), guard))
        .with_state(gateway)
}

/// Rate limit, deadline and counters of every request.
async fn guard(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let route = route_name(&request);
    let response = match admit(&gateway, &connection) {
        Err(failure) => failure.into_response(),
        Ok(()) => {
            // Once for the body, once for the answer.
            let within = gateway.config.gateway.request_timeout.duration() * 2;
            timeout(within, next.run(request))
                .await
                .unwrap_or_else(|_| Failure::later(503, 5, "the gateway is overloaded").into_response())
        }
    };
    let labels = RequestLabels {
        route,
        status: response.status().as_u16(),
    };
    gateway.metrics.requests.get_or_create(&labels).inc();
    response
}

fn admit(gateway: &Gateway, connection: &Connection) -> Result<(), Failure> {
    let now = clock::now_ms();
    let taken = match &connection.peer {
        Some(peer) => gateway
            .nodes
            .take((peer.cluster_id.clone(), peer.node_id.clone()), now),
        None => gateway.anonymous.take(connection.ip(), now),
    };
    taken.map_err(|wait| Failure::later(429, wait.as_secs().max(1), "too many requests"))
}

/// The route without ids: labels of metrics must stay few.
fn route_name(request: &Request) -> &'static str {
    match request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
        Some(REGISTER_PATH) => "register",
        Some(path) if path.ends_with("/heartbeat") => "heartbeat",
        Some(path) if path.ends_with("/challenge") => "challenge",
        Some(path) if path.ends_with("/recover") => "recover",
        Some(path) if path.ends_with("/certificate") => "certificate",
        _ => "other",
    }
}
