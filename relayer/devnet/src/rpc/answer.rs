//! One call, however it came in: over HTTP or a websocket.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::jsonrpc::{Request, RpcError, envelope};
use super::methods;
use crate::chain::Node;
use crate::stop::Stop;

/// What handlers share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) node: Arc<Node>,
    pub(super) stop: Stop,
    /// A websocket outlives the connection that it came by, so it is counted for itself.
    pub(super) websockets: Arc<Semaphore>,
}

/// Answers one call; a notification gets none.
pub(super) async fn one(node: &Arc<Node>, request: Request) -> Option<Value> {
    let id = request.id?;
    let node = Arc::clone(node);
    let called =
        tokio::task::spawn_blocking(move || methods::call(&node, &request.method, &request.params)).await;
    let outcome =
        called.unwrap_or_else(|error| Err(RpcError::internal(format!("the method panicked: {error}"))));
    Some(envelope(Some(&id), outcome))
}
