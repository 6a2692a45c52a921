//! One endpoint.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::error::{RpcError, causes, reason, redact};
use super::silences::{Silences, Unanswered};
use super::trust::Trust;
use super::types::{AbciAnswer, Block, CheckAnswer, ExecResult, Status, TxAnswer, TxPage};
use super::wire;
use crate::code;
use crate::hash::TxHash;
use crate::http;

/// What is wrong with an answer that nobody asked for.
pub(super) const OTHER_TX: &str = "another transaction than the one asked for";

/// Limits of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Deadline of one call, connecting included.
    pub timeout: Duration,
    /// Largest answer in bytes.
    pub max_answer: usize,
    /// Whose certificates count; none: those of the system's CAs.
    pub trust: Option<Trust>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            max_answer: 32 << 20,
            trust: None,
        }
    }
}

/// A JSON-RPC client of one CometBFT endpoint. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    url: Url,
    /// The address without credentials, for messages.
    name: String,
    options: ClientOptions,
    id: AtomicU64,
    silences: Silences,
}

impl Client {
    /// A client of the node at `url` (`http://`, `https://`, or `tcp://` as Cosmos tools write it).
    ///
    /// # Errors
    /// [`RpcError::Url`] if it is no such address; [`RpcError::Unreachable`] if TLS cannot be set up.
    pub fn new(url: &str, options: ClientOptions) -> Result<Self, RpcError> {
        let bad = || RpcError::Url { url: redact(url) };
        let text = url
            .strip_prefix("tcp://")
            .map_or_else(|| url.to_owned(), |rest| format!("http://{rest}"));
        let url = Url::parse(&text).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad());
        }
        let name = redact(url.as_str());
        let roots = options.trust.as_ref().map(Trust::requests);
        let http = http::client(url.as_str(), options.timeout, roots).map_err(|e| RpcError::Unreachable {
            endpoint: name.clone(),
            reason: e.to_string(),
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                http,
                url,
                name,
                options,
                id: AtomicU64::new(1),
                silences: Silences::default(),
            }),
        })
    }

    /// Whether both have the same address.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.inner.url == other.inner.url
    }

    /// The endpoint's address without credentials.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Methods that get no answer for long, where others do.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Unanswered> {
        self.inner.silences.lasting(self.name(), Instant::now())
    }

    /// Whether the method that failed so has given no answer for so long that it is not waited for, whatever else the endpoint
    /// answers.
    pub(super) fn has_given_up(&self, failed: &RpcError) -> bool {
        let method = failed.unanswered();
        method.is_some_and(|m| self.inner.silences.is_given_up(m, Instant::now()))
    }

    /// Whether a call had no answer a moment ago.
    pub(super) fn is_aside(&self) -> bool {
        self.inner.silences.is_aside(Instant::now())
    }

    /// It is one again after it was none for a while.
    pub(super) fn forget_silences(&self) {
        self.inner.silences.clear();
    }

    /// Where the endpoint tells events.
    pub(super) fn websocket_url(&self) -> String {
        let url = self.inner.url.as_str().trim_end_matches('/');
        let url = url.strip_prefix("http").unwrap_or(url);
        format!("ws{url}/websocket")
    }

    /// Whose certificates count.
    pub(super) fn trust(&self) -> Option<&Trust> {
        self.inner.options.trust.as_ref()
    }

    /// Largest answer in bytes.
    pub(super) fn max_answer(&self) -> usize {
        self.inner.options.max_answer
    }

    /// Newest block, chain id, sync state.
    ///
    /// # Errors
    /// [`RpcError`] of the transport.
    pub async fn status(&self) -> Result<Status, RpcError> {
        self.call("status", json!({}), wire::WireStatus::into_status)
            .await
    }

    /// Asks the application; `height` 0 is the newest. The chain's refusal is an answer, see [`AbciAnswer::code`].
    ///
    /// # Errors
    /// [`RpcError`]; a JSON-RPC error e.g. for a height that is not there.
    pub async fn abci_query(&self, path: &str, data: &[u8], height: u64) -> Result<AbciAnswer, RpcError> {
        let params = json!({
            "path": path, "data": hex::encode(data), "height": height.to_string(), "prove": false,
        });
        self.call("abci_query", params, wire::WireAbci::into_answer).await
    }

    /// Offers a transaction to the endpoint's mempool. Refusals, given as code or as text, are answers.
    ///
    /// # Errors
    /// Only where the transaction may or may not have arrived.
    pub async fn broadcast_tx_sync(&self, tx: &[u8]) -> Result<CheckAnswer, RpcError> {
        let params = json!({ "tx": STANDARD.encode(tx) });
        let read = Ok::<wire::WireBroadcast, String>;
        match self.call("broadcast_tx_sync", params, read).await {
            Ok(wire::WireBroadcast { code, codespace, log }) => {
                let verdict = code::of_abci(&codespace, code, &log);
                Ok(CheckAnswer {
                    verdict,
                    code,
                    codespace,
                    log,
                })
            }
            Err(RpcError::RequestTooLarge { .. }) => Ok(CheckAnswer {
                verdict: code::Verdict::TxTooLarge,
                code: 0,
                codespace: String::new(),
                log: "the node takes no request of this size".to_owned(),
            }),
            Err(RpcError::Response { data, message, .. }) => {
                let log = reason(message, data);
                let verdict = code::of_broadcast_error(&log);
                Ok(CheckAnswer {
                    verdict,
                    code: 0,
                    codespace: String::new(),
                    log,
                })
            }
            Err(other) => Err(other),
        }
    }

    /// Looks a transaction up; `None` if the endpoint's index does not have it.
    ///
    /// # Errors
    /// [`RpcError`]; [`RpcError::NotKept`] where the endpoint keeps no index.
    pub async fn tx(&self, hash: TxHash) -> Result<Option<TxAnswer>, RpcError> {
        let params = json!({ "hash": STANDARD.encode(hash.as_bytes()), "prove": false });
        let asked_for = |wire: wire::WireTx| {
            let answer = wire.into_answer()?;
            if answer.hash == hash {
                Ok(answer)
            } else {
                Err(OTHER_TX.to_owned())
            }
        };
        match self.call("tx", params, asked_for).await {
            Err(RpcError::Response { data, .. }) if code::is_tx_not_found(&data) => Ok(None),
            Err(RpcError::Response {
                endpoint,
                message,
                data,
                ..
            }) if code::is_index_off(&data) || code::is_index_off(&message) => Err(RpcError::NotKept {
                endpoint,
                what: "an index of transactions",
                reason: reason(message, data),
                unheard: Vec::new(),
            }),
            other => other.map(Some),
        }
    }

    /// Searches the index, oldest first; `page` counts from 1, `per_page` is at most 100.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn tx_search(&self, query: &str, page: u32, per_page: u32) -> Result<TxPage, RpcError> {
        let params = json!({
            "query": query, "prove": false, "page": page.to_string(), "per_page": per_page.to_string(),
            "order_by": "asc",
        });
        self.call("tx_search", params, wire::WireTxPage::into_page).await
    }

    /// A block; the newest without a height.
    ///
    /// # Errors
    /// [`RpcError::Response`] if the height is not there or was pruned.
    pub async fn block(&self, height: Option<u64>) -> Result<Block, RpcError> {
        self.call("block", at(height), wire::WireBlockAnswer::into_block)
            .await
    }

    /// The results of a block's transactions, in their order.
    ///
    /// # Errors
    /// [`RpcError::Response`] if the height is not there or was pruned.
    pub async fn block_results(&self, height: u64) -> Result<Vec<ExecResult>, RpcError> {
        let results = |wire: wire::WireBlockResults| {
            let all = wire.txs_results.unwrap_or_default().into_iter();
            all.map(wire::WireExec::into_result).collect()
        };
        self.call("block_results", at(Some(height)), results).await
    }

    pub(super) fn read<T>(&self, method: &'static str, parsed: Result<T, String>) -> Result<T, RpcError> {
        parsed.map_err(|reason| RpcError::Malformed {
            endpoint: self.inner.name.clone(),
            method,
            reason,
        })
    }

    /// Asks, and keeps in mind whether this method is answered.
    pub(super) async fn call<W: DeserializeOwned, T>(
        &self,
        method: &'static str,
        params: Value,
        read: impl FnOnce(W) -> Result<T, String>,
    ) -> Result<T, RpcError> {
        let answer = match self.post(method, params).await {
            Ok(wire) => self.read(method, read(wire)),
            Err(e) => Err(e),
        };
        let failed = answer.as_ref().err();
        self.inner.silences.note(method, failed, Instant::now());
        answer
    }

    async fn post<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, RpcError> {
        let endpoint = || self.inner.name.clone();
        let id = self.inner.id.fetch_add(1, Ordering::Relaxed);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let failed = |e: &reqwest::Error| {
            // A connection that times out is both.
            if e.is_connect() {
                RpcError::Unreachable {
                    endpoint: endpoint(),
                    reason: causes(e),
                }
            } else if e.is_timeout() {
                let millis = u64::try_from(self.inner.options.timeout.as_millis()).unwrap_or(u64::MAX);
                RpcError::Timeout {
                    endpoint: endpoint(),
                    method,
                    millis,
                }
            } else {
                RpcError::Broken {
                    endpoint: endpoint(),
                    method,
                    reason: causes(e),
                }
            }
        };
        let request = self.inner.http.post(self.inner.url.clone()).json(&body);
        let mut response = request.send().await.map_err(|e| failed(&e))?;
        let status = response.status();
        if status == reqwest::StatusCode::PAYLOAD_TOO_LARGE {
            return Err(RpcError::RequestTooLarge {
                endpoint: endpoint(),
                method,
            });
        }
        let limit = self.inner.options.max_answer;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| failed(&e))? {
            if bytes.len().saturating_add(chunk.len()) > limit {
                return Err(RpcError::TooLarge {
                    endpoint: endpoint(),
                    method,
                    limit,
                });
            }
            bytes.extend_from_slice(&chunk);
        }
        // CometBFT answers errors with HTTP 500 and a JSON-RPC body: the body decides.
        let envelope: wire::Envelope = serde_json::from_slice(&bytes).map_err(|e| RpcError::Malformed {
            endpoint: endpoint(),
            method,
            reason: format!("HTTP {}, {e}", status.as_u16()),
        })?;
        if let Some(error) = envelope.error {
            return Err(error.into_response(&self.inner.name, method));
        }
        let result = envelope
            .result
            .map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned());
        self.read(method, serde_json::from_str(&result).map_err(|e| e.to_string()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.inner.name)
            .finish_non_exhaustive()
    }
}

pub(super) fn at(height: Option<u64>) -> Value {
    height.map_or_else(|| json!({}), |h| json!({ "height": h.to_string() }))
}
