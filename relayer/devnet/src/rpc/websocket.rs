//! Subscriptions. A client that does not read is disconnected.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::answer::{Shared, one};
use super::jsonrpc::{Request, RpcError, envelope};
use super::params::Params;
use super::{methods, view};
use crate::chain::{BlockId, Committed, Node, Query, header};
use crate::tx;

/// How long a client may take to accept one message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a ping is sent; without any sign of life for twice as long the connection is closed.
const PING_PERIOD: Duration = Duration::from_secs(30);

/// How long the closing handshake may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// One subscription of a connection.
struct Subscription {
    id: Value,
    text: String,
    query: Query,
}

/// The connection is to be closed.
struct Close;

/// Serves one websocket to its end.
pub(super) async fn serve(mut socket: WebSocket, shared: Shared) {
    let mut stop = shared.stop.clone();
    let mut subscriptions: Vec<Subscription> = Vec::new();
    let mut commits = shared.node.subscribe();
    let mut ping = tokio::time::interval(PING_PERIOD);
    let mut alive = true;
    loop {
        let outcome = tokio::select! {
            incoming = socket.recv() => {
                alive = true;
                match incoming {
                    Some(Ok(message)) => receive(&mut socket, &shared, &mut subscriptions, message).await,
                    Some(Err(_)) | None => Err(Close),
                }
            }
            commit = commits.recv() => publish(&mut socket, &shared.node, &subscriptions, commit).await,
            _ = ping.tick() => {
                let silent = !std::mem::replace(&mut alive, false);
                if silent { Err(Close) } else { send(&mut socket, Message::Ping(Vec::new().into())).await }
            }
            () = stop.wait() => Err(Close),
        };
        if outcome.is_err() {
            let clean = tokio::time::timeout(CLOSE_TIMEOUT, close(&mut socket))
                .await
                .is_ok();
            tracing::debug!(clean, "websocket closed");
            return;
        }
    }
}

/// The closing handshake, whichever side began it.
async fn close(socket: &mut WebSocket) {
    if let Err(error) = socket.send(Message::Close(None)).await {
        tracing::trace!(%error, "the client has closed already");
    }
    // Reading on sends the answer to a client's close and takes in its answer to ours.
    while let Some(Ok(_)) = socket.recv().await {}
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), Close> {
    match tokio::time::timeout(WRITE_TIMEOUT, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Close),
        Err(_) => {
            tracing::info!("disconnecting a websocket client that does not read");
            Err(Close)
        }
    }
}

async fn send_json(socket: &mut WebSocket, value: &Value) -> Result<(), Close> {
    send(socket, Message::Text(value.to_string().into())).await
}

async fn receive(
    socket: &mut WebSocket,
    shared: &Shared,
    subscriptions: &mut Vec<Subscription>,
    message: Message,
) -> Result<(), Close> {
    let parsed = match &message {
        Message::Text(text) => serde_json::from_str::<Request>(text),
        Message::Binary(bytes) => serde_json::from_slice::<Request>(bytes),
        Message::Ping(_) | Message::Pong(_) => return Ok(()),
        Message::Close(_) => return Err(Close),
    };
    let request = match parsed {
        Ok(request) => request,
        Err(error) => {
            let error = RpcError::parse(format!("error unmarshaling request: {error}"));
            return send_json(socket, &envelope(None, Err(error))).await;
        }
    };
    let Some(id) = request.id.clone() else {
        return Ok(());
    };
    let max = shared.node.config.limits.subscriptions;
    let outcome = match request.method.as_str() {
        "subscribe" => subscribe(subscriptions, max, &id, &request.params),
        "unsubscribe" => unsubscribe(subscriptions, &request.params),
        "unsubscribe_all" => {
            if subscriptions.is_empty() {
                Err(RpcError::internal("subscription not found"))
            } else {
                subscriptions.clear();
                Ok(json!({}))
            }
        }
        _ => {
            let answer = one(&shared.node, request).await;
            return send_json(socket, &answer.unwrap_or(Value::Null)).await;
        }
    };
    send_json(socket, &envelope(Some(&id), outcome)).await
}

fn subscribe(
    subscriptions: &mut Vec<Subscription>,
    max: usize,
    id: &Value,
    params: &Value,
) -> Result<Value, RpcError> {
    let text = Params::new(params, &["query"])?.text("query")?.to_string();
    if subscriptions.len() >= max {
        return Err(RpcError::internal(format!(
            "max_subscriptions_per_client {max} reached"
        )));
    }
    let query = Query::parse(&text).map_err(RpcError::internal)?;
    match query.event_type() {
        Some("Tx") => {}
        Some("NewBlock") if query.only_event_type() => {}
        _ => {
            return Err(RpcError::internal(
                "failed to parse query: the embedded chain has subscriptions to tm.event='NewBlock' and tm.event='Tx' [AND …] only",
            ));
        }
    }
    if subscriptions.iter().any(|s| s.query == query) {
        return Err(RpcError::internal("already subscribed"));
    }
    subscriptions.push(Subscription {
        id: id.clone(),
        text,
        query,
    });
    Ok(json!({}))
}

fn unsubscribe(subscriptions: &mut Vec<Subscription>, params: &Value) -> Result<Value, RpcError> {
    let text = Params::new(params, &["query"])?.text("query")?;
    let query = Query::parse(text).map_err(RpcError::internal)?;
    let before = subscriptions.len();
    subscriptions.retain(|s| s.query != query);
    if subscriptions.len() == before {
        return Err(RpcError::internal("subscription not found"));
    }
    Ok(json!({}))
}

/// Sends a committed block, and its transactions, to the subscriptions that match.
async fn publish(
    socket: &mut WebSocket,
    node: &Node,
    subscriptions: &[Subscription],
    commit: Result<Arc<Committed>, RecvError>,
) -> Result<(), Close> {
    let commit = match commit {
        Ok(commit) => commit,
        Err(broadcast::error::RecvError::Lagged(blocks)) => {
            tracing::info!(blocks, "disconnecting a websocket client that lags behind");
            for subscription in subscriptions {
                let error = RpcError::server("subscription was canceled (reason: slow client)");
                send_json(socket, &envelope(Some(&subscription.id), Err(error))).await?;
            }
            return Err(Close);
        }
        Err(broadcast::error::RecvError::Closed) => return Err(Close),
    };
    for subscription in subscriptions {
        if subscription.query.event_type() == Some("NewBlock") {
            if let Some(data) = new_block(node, &commit) {
                send_event(socket, subscription, data, json!({"tm.event": ["NewBlock"]})).await?;
            }
            continue;
        }
        for (index, (bytes, result)) in (0u32..).zip(commit.block.txs.iter().zip(&commit.block.results)) {
            if subscription
                .query
                .matches_tx(commit.height, bytes, &result.events)
            {
                let data = view::tx_event(commit.height, index, bytes, result);
                send_event(
                    socket,
                    subscription,
                    data,
                    tx_attributes(commit.height, bytes, result),
                )
                .await?;
            }
        }
    }
    Ok(())
}

async fn send_event(
    socket: &mut WebSocket,
    subscription: &Subscription,
    data: Value,
    events: Value,
) -> Result<(), Close> {
    let result = json!({"query": subscription.text, "data": data, "events": events});
    send_json(socket, &envelope(Some(&subscription.id), Ok(result))).await
}

fn new_block(node: &Node, commit: &Committed) -> Option<Value> {
    let header = header(
        &node.params.chain_id,
        commit.height,
        &commit.block,
        &commit.previous,
    )
    .inspect_err(|error| tracing::error!(%error, "cannot build a header"))
    .ok()?;
    Some(json!({"type": "tendermint/event/NewBlock", "value": {
        "block": view::block(&header, &commit.block),
        "block_id": view::block_id(Some(&BlockId(commit.block.hash.clone()))),
        "result_finalize_block": {
            "events": [],
            "tx_results": view::results(&commit.block),
            "validator_updates": [],
            "consensus_param_updates": methods::consensus_params(node),
            "app_hash": view::bytes(&commit.block.app_hash),
        },
    }}))
}

/// All attributes of a transaction's events by `type.key`, with the ones that CometBFT adds.
fn tx_attributes(height: u64, bytes: &[u8], result: &tx::TxResult) -> Value {
    let mut map: Map<String, Value> = Map::new();
    let mut add = |key: String, value: &str| {
        if let Value::Array(list) = map.entry(key).or_insert_with(|| json!([])) {
            list.push(json!(value));
        }
    };
    add("tm.event".to_string(), "Tx");
    add("tx.hash".to_string(), &view::hex_upper(tx::hash(bytes)));
    add("tx.height".to_string(), &height.to_string());
    for event in &result.events {
        for attribute in &event.attributes {
            add(format!("{}.{}", event.kind, attribute.key), &attribute.value);
        }
    }
    Value::Object(map)
}
