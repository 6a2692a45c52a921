//! The HTTP listener: one POST endpoint, a health check and the websocket, all of them bounded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request as HttpRequest, State, WebSocketUpgrade};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::Service;

use super::answer::{Shared, one};
use super::jsonrpc::{Request, RpcError, envelope};
use super::{uri, websocket};
use crate::chain::Node;
use crate::error::Error;
use crate::stop::Stop;

/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open requests may take after the server is told to stop.
const DRAIN: Duration = Duration::from_secs(3);
/// Calls in one batch.
const MAX_BATCH: usize = 64;

/// Opens the listener.
pub(crate) fn bind(addr: SocketAddr, allow_remote: bool) -> Result<std::net::TcpListener, Error> {
    if !addr.ip().is_loopback() && !allow_remote {
        return Err(Error::RemoteNotAllowed(addr));
    }
    let listener = std::net::TcpListener::bind(addr).map_err(|source| Error::Listen { addr, source })?;
    listener
        .set_nonblocking(true)
        .map_err(|source| Error::Listen { addr, source })?;
    Ok(listener)
}

/// The RPC server.
pub(crate) struct Server {
    node: Arc<Node>,
    stop: Stop,
}

impl Server {
    pub(crate) fn new(node: Arc<Node>, stop: Stop) -> Self {
        Self { node, stop }
    }

    /// Serves until told to stop, then lets open requests end for a short while.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let limits = &self.node.config.limits;
        let connections = Arc::new(Semaphore::new(limits.connections));
        let shared = Shared {
            node: Arc::clone(&self.node),
            stop: self.stop.clone(),
            websockets: Arc::new(Semaphore::new(limits.websockets)),
        };
        let router = Router::new()
            .route("/", post(rpc).get(welcome))
            .route("/health", get(health))
            .route("/websocket", get(upgrade))
            .route("/{method}", get(call))
            .layer(DefaultBodyLimit::max(limits.body_bytes))
            .with_state(shared);
        let mut stop = self.stop.clone();
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => match Arc::clone(&connections).try_acquire_owned() {
                        Ok(permit) => {
                            let connection = connection(stream, router.clone(), self.stop.clone());
                            open.spawn(async move {
                                connection.await;
                                drop(permit);
                            });
                        }
                        Err(_) => tracing::warn!(max = limits.connections, "too many connections: refused one"),
                    },
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                // Finished connections are collected as they end.
                Some(_) = open.join_next() => {}
                () = stop.wait() => break,
            }
        }
        drop(listener);
        let drained = tokio::time::timeout(DRAIN, async { while open.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::debug!("closing connections that did not end in time");
        }
    }
}

async fn connection(stream: TcpStream, router: Router, mut stop: Stop) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let service =
        hyper::service::service_fn(move |request: hyper::Request<Incoming>| router.clone().call(request));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = http
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

async fn welcome() -> Response {
    let text = "This is the embedded chain. Send JSON-RPC by POST to /, read by GET (/status, /block?height=1), or open the websocket at /websocket.\n";
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")], text).into_response()
}

async fn health(State(shared): State<Shared>) -> Response {
    let stopped = tokio::task::spawn_blocking(move || shared.node.stopped()).await;
    match stopped {
        Ok(None) => json(StatusCode::OK, &serde_json::json!({})),
        Ok(Some(reason)) => (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn call(
    State(shared): State<Shared>,
    Path(method): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    // CometBFT answers calls by URI with this id.
    let id = Value::from(-1);
    let params = match uri::params(&method, &query) {
        Ok(params) => params,
        Err(error) => return json(StatusCode::NOT_FOUND, &envelope(Some(&id), Err(error))),
    };
    let request = Request {
        id: Some(id),
        method,
        params,
    };
    match one(&shared.node, request).await {
        Some(answer) if answer.get("error").is_some() => json(StatusCode::INTERNAL_SERVER_ERROR, &answer),
        Some(answer) => json(StatusCode::OK, &answer),
        None => StatusCode::OK.into_response(),
    }
}

async fn upgrade(State(shared): State<Shared>, upgrade: WebSocketUpgrade) -> Response {
    let Ok(permit) = Arc::clone(&shared.websockets).try_acquire_owned() else {
        let text = format!(
            "max_subscription_clients {} reached",
            shared.node.config.limits.websockets
        );
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let max = shared.node.config.limits.body_bytes;
    upgrade
        .max_message_size(max)
        .max_frame_size(max)
        .on_upgrade(move |socket| async move {
            websocket::serve(socket, shared).await;
            drop(permit);
        })
}

async fn rpc(State(shared): State<Shared>, request: HttpRequest) -> Response {
    let max = shared.node.config.limits.body_bytes;
    let body = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(request.into_body(), max)).await;
    let body = match body {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let error = RpcError::invalid_request(format!(
                "error reading request body: {error} (at most {max} bytes)"
            ));
            return json(StatusCode::BAD_REQUEST, &envelope(None, Err(error)));
        }
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    answer(&shared.node, &body).await
}

async fn answer(node: &Arc<Node>, body: &Bytes) -> Response {
    let parse_error = |error: &dyn std::fmt::Display| {
        let error = RpcError::parse(format!("error unmarshaling request: {error}"));
        json(StatusCode::INTERNAL_SERVER_ERROR, &envelope(None, Err(error)))
    };
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => return parse_error(&error),
    };
    if let Value::Array(requests) = value {
        if requests.len() > MAX_BATCH {
            let error = RpcError::invalid_request(format!("a batch has at most {MAX_BATCH} requests"));
            return json(StatusCode::BAD_REQUEST, &envelope(None, Err(error)));
        }
        let mut answers = Vec::new();
        for request in requests {
            match serde_json::from_value(request) {
                Ok(request) => answers.extend(one(node, request).await),
                Err(error) => return parse_error(&error),
            }
        }
        // CometBFT answers a batch of one with the bare object.
        return match answers.as_slice() {
            [] => StatusCode::OK.into_response(),
            [one] => json(StatusCode::OK, one),
            all => json(StatusCode::OK, &all),
        };
    }
    match serde_json::from_value(value) {
        Ok(request) => match one(node, request).await {
            Some(answer) => json(StatusCode::OK, &answer),
            None => StatusCode::OK.into_response(),
        },
        Err(error) => parse_error(&error),
    }
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
