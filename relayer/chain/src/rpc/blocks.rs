//! New blocks of one endpoint, as it makes them known: the websocket's `NewBlock`.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use super::client::Client;
use super::error::{RpcError, causes};
use super::wire;

/// Longest wait for the connection and the answer to `subscribe`.
const OPENING: Duration = Duration::from_secs(10);
const METHOD: &str = "subscribe";

/// A block that an endpoint has made known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBlock {
    /// Chain id.
    pub chain_id: String,
    /// Height.
    pub height: u64,
    /// Header time, UNIX milliseconds.
    pub time_ms: u64,
}

/// A subscription. It ends with the connection; who misses blocks reads them by height.
#[derive(Debug)]
pub struct Blocks {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    endpoint: String,
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default, rename = "type")]
    ty: String,
    value: Box<RawValue>,
}

impl Blocks {
    /// Subscribes.
    ///
    /// # Errors
    /// [`RpcError`], where the endpoint has no websocket or refuses the subscription.
    pub async fn subscribe(client: &Client) -> Result<Self, RpcError> {
        let endpoint = client.name().to_owned();
        let late = |_| RpcError::Timeout {
            endpoint: client.name().to_owned(),
            method: METHOD,
            millis: 10_000,
        };
        let most = client.max_answer();
        let config = WebSocketConfig::default()
            .max_message_size(Some(most))
            .max_frame_size(Some(most));
        let trusted = client.trust().map(|t| Connector::Rustls(t.websocket()));
        let connecting = connect_async_tls_with_config(client.websocket_url(), Some(config), true, trusted);
        let (socket, _) = timeout(OPENING, connecting)
            .await
            .map_err(late)?
            .map_err(|e| unreachable(&endpoint, &e))?;
        let mut blocks = Self { socket, endpoint };
        let ask = serde_json::json!({
            "jsonrpc": "2.0", "id": 1, "method": METHOD, "params": { "query": "tm.event='NewBlock'" },
        });
        timeout(OPENING, blocks.socket.send(Message::text(ask.to_string())))
            .await
            .map_err(late)?
            .map_err(|e| unreachable(&blocks.endpoint, &e))?;
        let answer = timeout(OPENING, blocks.result()).await.map_err(late)??;
        match blocks.block(&answer)? {
            // An endpoint may tell the first block before it answers; the next one comes soon enough.
            None | Some(_) => Ok(blocks),
        }
    }

    /// The next block. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`RpcError`]: the subscription is over.
    pub async fn next(&mut self) -> Result<NewBlock, RpcError> {
        loop {
            let result = self.result().await?;
            if let Some(block) = self.block(&result)? {
                return Ok(block);
            }
        }
    }

    /// The `result` of the next JSON-RPC message.
    async fn result(&mut self) -> Result<String, RpcError> {
        loop {
            let text = match self.socket.next().await {
                Some(Ok(Message::Text(text))) => text,
                // Pings are answered by the library when it reads on.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_) | Message::Binary(_))) => {
                    continue;
                }
                Some(Ok(Message::Close(_))) | None => {
                    return Err(RpcError::Unreachable {
                        endpoint: self.endpoint.clone(),
                        reason: "the subscription was closed".to_owned(),
                    });
                }
                Some(Err(e)) => return Err(unreachable(&self.endpoint, &e)),
            };
            let envelope: wire::Envelope =
                serde_json::from_str(&text).map_err(|e| self.malformed(e.to_string()))?;
            if let Some(error) = envelope.error {
                return Err(error.into_response(&self.endpoint, METHOD));
            }
            return Ok(envelope
                .result
                .map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned()));
        }
    }

    fn block(&self, result: &str) -> Result<Option<NewBlock>, RpcError> {
        let told: Option<Told> = serde_json::from_str(result).map_err(|e| self.malformed(e.to_string()))?;
        let Some(data) = told.and_then(|t| t.data).filter(|d| d.ty.ends_with("NewBlock")) else {
            return Ok(None);
        };
        let wire: wire::WireBlockAnswer =
            serde_json::from_str(data.value.get()).map_err(|e| self.malformed(e.to_string()))?;
        let block = wire.into_block().map_err(|e| self.malformed(e))?;
        Ok(Some(NewBlock {
            chain_id: block.chain_id,
            height: block.height,
            time_ms: block.time_ms,
        }))
    }

    fn malformed(&self, reason: String) -> RpcError {
        RpcError::Malformed {
            endpoint: self.endpoint.clone(),
            method: METHOD,
            reason,
        }
    }
}

fn unreachable(endpoint: &str, e: &WsError) -> RpcError {
    // The error's own text may hold the address, and with it a key.
    let reason = match e {
        WsError::Http(answer) => format!("the websocket was refused with HTTP {}", answer.status().as_u16()),
        WsError::Io(e) => e.to_string(),
        WsError::ConnectionClosed | WsError::AlreadyClosed => "the connection was closed".to_owned(),
        other => causes(other),
    };
    RpcError::Unreachable {
        endpoint: endpoint.to_owned(),
        reason,
    }
}
