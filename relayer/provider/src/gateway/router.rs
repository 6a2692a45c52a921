use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hpc_schema::code::Code;
use hpc_schema::gateway::REGISTER_PATH;
use hpc_schema::refusal::Refusal;
use hyper::body::Incoming;
use tower::Service as _;

use super::answer::{Failure, Told};
use super::body::Announced;
use super::connection::{Connection, Look};
use super::heartbeat::{self, Asked};
use super::{Gateway, certificate, register, result, tasks};
use crate::admission::network;
use crate::clock::Moment;
use crate::ops::RequestLabels;
use crate::unread;

const MAX_HEADERS: usize = 64;
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
            post(result::result),
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

/// An answer under way.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Answers one request of a connection, in memory as large as the way that it takes and gone with its answer: thousands of
/// connections are idle. Heartbeats, which are nearly all there is, and what waits for long take the short way; all else goes
/// through the router.
pub(super) fn answer(
    gateway: &Arc<Gateway>,
    router: &Router,
    connection: &Arc<Connection>,
    request: Request<Incoming>,
) -> Answering {
    let (gateway, connection) = (Arc::clone(gateway), Arc::clone(connection));
    match short_way(&request) {
        Some(Short::Heartbeat(node)) => {
            let (announced, bounded) = (Announced::by(request.headers()), bounded(request.headers()));
            let mut body = request.into_body();
            Box::pin(async move {
                let response = guarded(&gateway, &connection, "heartbeat", bounded, |came, look| {
                    let asked = Asked {
                        gateway: &gateway,
                        connection: &connection,
                        path_node: &node,
                        announced,
                        came,
                        look,
                    };
                    heartbeat::receive(asked, &mut body)
                });
                let response = response.await;
                // One that is too large has been read as far as it ever is.
                let too_large = response.status() == StatusCode::PAYLOAD_TOO_LARGE;
                if !body.is_end_stream() && !too_large && announced.is_thrown_away() {
                    let most = unread::discarded(response.status());
                    Box::pin(unread::throw_away(body, most)).await;
                }
                response
            })
        }
        Some(Short::Wait(node)) => {
            let bounded = bounded(request.headers());
            let query = request.uri().query().map(ToOwned::to_owned);
            Box::pin(async move {
                let wait = |_: Moment, look: Look| {
                    // It waits for long, and looks again.
                    drop(look);
                    tasks::parked(&gateway, &connection, &node, query.as_deref())
                };
                guarded(&gateway, &connection, "tasks_wait", bounded, wait).await
            })
        }
        None => {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Connection::clone(&connection));
            let mut router = router.clone();
            Box::pin(async move {
                match unread::answered(request, async |request| router.call(request).await).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            })
        }
    }
}

/// What needs no router.
enum Short {
    Heartbeat(String),
    Wait(String),
}

/// The node that the path names, if this is one of them and the path is plain; the router looks closer at all else.
fn short_way(request: &Request<Incoming>) -> Option<Short> {
    let path = request.uri().path();
    let (node, short): (_, fn(String) -> Short) = match *request.method() {
        Method::POST => {
            let rest = path.strip_prefix("/api/v1/hpc/nodes/")?;
            (rest.strip_suffix("/heartbeat")?, Short::Heartbeat)
        }
        Method::GET if request.body().is_end_stream() => {
            let rest = path.strip_prefix("/internal/v1/nodes/")?;
            (rest.strip_suffix("/tasks/wait")?, Short::Wait)
        }
        _ => return None,
    };
    let plain = !node.is_empty() && !node.contains(['/', '%']);
    plain.then(|| short(node.to_owned()))
}

async fn guard(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let route = route_name(&request);
    let bounded = bounded(request.headers());
    let run = |_: Moment, look: Look| {
        // Whoever answers looks again.
        drop(look);
        next.run(request)
    };
    guarded(&gateway, &connection, route, bounded, run).await
}

/// Rate limit, deadline and counters of every request; `bounded`: its head is. `run` has when it came and who asked then.
async fn guarded<F>(
    gateway: &Gateway,
    connection: &Connection,
    route: &'static str,
    bounded: bool,
    run: impl FnOnce(Moment, Look) -> F,
) -> Response
where
    F: Future<Output: IntoResponse>,
{
    let mut response = match admit(gateway, connection, route, bounded) {
        Err(failure) => failure.into_response(),
        Ok((came, look)) => {
            // Once for the body, once for the answer.
            let mut within = gateway.live.get().gateway.request_timeout.duration() * 2;
            if route == "tasks_wait" {
                within += tasks::LONGEST_WAIT;
            }
            let answer = pin!(run(came, look));
            match connection.pace.within(within, answer).await {
                Some(answer) => answer.into_response(),
                None => Failure::unavailable(5, "the gateway is overloaded").into_response(),
            }
        }
    };
    if closes(connection, response.status()) {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let told = response.extensions().get::<Told>().copied();
    if let Some(what) = intrudes(connection, route, response.status(), told) {
        gateway.log_once_of(connection, what);
    }
    let labels = RequestLabels {
        route,
        status: response.status().as_u16(),
    };
    gateway.metrics.requests.get_or_create(&labels).inc();
    response
}

/// What an operator wants to hear of a request that is turned away, whoever sent it.
fn intrudes(
    connection: &Connection,
    route: &str,
    status: StatusCode,
    told: Option<Told>,
) -> Option<&'static str> {
    if let Some(Told(what)) = told {
        return Some(what);
    }
    match status {
        StatusCode::UNAUTHORIZED => Some("a certificate that does not count"),
        StatusCode::FORBIDDEN if matches!(route, "register" | "recover") => {
            Some("a token or a signature that does not allow it")
        }
        StatusCode::FORBIDDEN if connection.peer.is_none() => {
            Some("a request without the node's certificate")
        }
        StatusCode::FORBIDDEN => Some("a request that this node's certificate does not allow"),
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Some("a body that is too large, compressed, or no JSON")
        }
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Some("a head that is too large"),
        StatusCode::REQUEST_TIMEOUT => Some("a body that does not end in time"),
        _ => None,
    }
}

/// Whether a request may be made; `bounded`: its head is. When it came, and who asked then.
fn admit(
    gateway: &Gateway,
    connection: &Connection,
    route: &str,
    bounded: bool,
) -> Result<(Moment, Look), Failure> {
    let came = Moment::now();
    let look = connection.look(gateway, came.seconds());
    let now = came.steady();
    let taken = match connection.member_at(&look) {
        Some(peer) => {
            let (limiter, held) = if route.starts_with("task") {
                (&gateway.working, &connection.held.working)
            } else {
                (&gateway.nodes, &connection.held.requests)
            };
            limiter.take_held(held, || (peer.cluster_id.clone(), peer.node_id.clone()), now)
        }
        None => gateway.anonymous.take(network(connection.ip()), now),
    };
    taken.map_err(|wait| {
        gateway.log_once_of(connection, "more requests than it may make");
        Failure::rate_limited(wait.as_secs().max(1))
    })?;
    if !bounded {
        return Err(head_too_large());
    }
    Ok((came, look))
}

/// More than this gets no answer but the bare status of the HTTP layer, which has its own limits.
fn bounded(headers: &HeaderMap) -> bool {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    headers.len() <= MAX_HEADERS && bytes <= MAX_HEADER_BYTES
}

fn head_too_large() -> Failure {
    let what = format!("the head has more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes");
    Failure::new(431, Refusal::whole(Code::BodyTooLarge, what))
}

/// Whether the connection ends with this answer: who has no certificate gets no second try on it, and who asks too
/// much or shows a certificate that does not count, neither.
fn closes(connection: &Connection, status: StatusCode) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => true,
        _ => (connection.peer.is_none() || connection.refused.is_some()) && !status.is_success(),
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
