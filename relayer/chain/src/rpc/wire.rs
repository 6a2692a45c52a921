//! JSON shapes of CometBFT 0.37 to 1.x, and their way into [`super::types`]. Absent members take their zero value, as in
//! Go's encoding; unknown ones are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

use super::error::RpcError;
use super::types::{AbciAnswer, Attribute, Block, Event, ExecResult, Status, TxAnswer, TxPage};
use crate::code::is_request_too_large;
use crate::hash::TxHash;

#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub(super) result: Option<Box<serde_json::value::RawValue>>,
    #[serde(default)]
    pub(super) error: Option<WireError>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireError {
    #[serde(default)]
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) data: Option<serde_json::Value>,
}

impl WireError {
    pub(super) fn into_response(self, endpoint: &str, method: &'static str) -> RpcError {
        let Self { code, message, data } = self;
        let data = match data {
            Some(serde_json::Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let endpoint = endpoint.to_owned();
        if is_request_too_large(&data) {
            return RpcError::RequestTooLarge { endpoint, method };
        }
        RpcError::Response {
            endpoint,
            method,
            code,
            message,
            data,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireStatus {
    node_info: WireNodeInfo,
    sync_info: WireSyncInfo,
}

#[derive(Debug, Deserialize)]
struct WireNodeInfo {
    network: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    other: WireOther,
}

#[derive(Debug, Default, Deserialize)]
struct WireOther {
    #[serde(default)]
    tx_index: String,
}

#[derive(Debug, Deserialize)]
struct WireSyncInfo {
    #[serde(deserialize_with = "number")]
    latest_block_height: u64,
    latest_block_time: String,
    #[serde(default, deserialize_with = "number")]
    earliest_block_height: u64,
    #[serde(default)]
    catching_up: bool,
}

impl WireStatus {
    pub(super) fn into_status(self) -> Result<Status, String> {
        Ok(Status {
            chain_id: self.node_info.network,
            version: self.node_info.version,
            height: self.sync_info.latest_block_height,
            // A node without blocks yet says year 1.
            block_time_ms: if self.sync_info.latest_block_height == 0 {
                0
            } else {
                millis(&self.sync_info.latest_block_time)?
            },
            earliest_height: self.sync_info.earliest_block_height,
            catching_up: self.sync_info.catching_up,
            tx_index: self.node_info.other.tx_index != "off",
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireAbci {
    response: WireAbciResponse,
}

#[derive(Debug, Deserialize)]
struct WireAbciResponse {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    codespace: String,
    #[serde(default)]
    log: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default, deserialize_with = "number")]
    height: u64,
}

impl WireAbci {
    pub(super) fn into_answer(self) -> Result<AbciAnswer, String> {
        let WireAbciResponse {
            code,
            codespace,
            log,
            value,
            height,
        } = self.response;
        let value = bytes("value", value.as_deref().unwrap_or(""))?;
        Ok(AbciAnswer {
            code,
            codespace,
            log,
            value,
            height,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireBroadcast {
    #[serde(default)]
    pub(super) code: u32,
    #[serde(default)]
    pub(super) codespace: String,
    #[serde(default)]
    pub(super) log: String,
}

#[derive(Debug, Deserialize)]
struct WireAttribute {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireEvent {
    #[serde(rename = "type", default)]
    ty: String,
    #[serde(default)]
    attributes: Option<Vec<WireAttribute>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireExec {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    codespace: String,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    log: String,
    #[serde(default, deserialize_with = "number")]
    gas_wanted: u64,
    #[serde(default, deserialize_with = "number")]
    gas_used: u64,
    #[serde(default)]
    events: Option<Vec<WireEvent>>,
}

impl WireExec {
    pub(super) fn into_result(self) -> Result<ExecResult, String> {
        let attribute = |a: WireAttribute| Attribute {
            key: a.key,
            value: a.value.unwrap_or_default(),
        };
        let event = |e: WireEvent| Event {
            ty: e.ty,
            attributes: e
                .attributes
                .unwrap_or_default()
                .into_iter()
                .map(attribute)
                .collect(),
        };
        Ok(ExecResult {
            code: self.code,
            codespace: self.codespace,
            data: bytes("data", self.data.as_deref().unwrap_or(""))?,
            log: self.log,
            gas_wanted: self.gas_wanted,
            gas_used: self.gas_used,
            events: self.events.unwrap_or_default().into_iter().map(event).collect(),
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireTx {
    #[serde(deserialize_with = "number")]
    height: u64,
    #[serde(default)]
    index: u32,
    tx_result: WireExec,
    tx: String,
}

impl WireTx {
    pub(super) fn into_answer(self) -> Result<TxAnswer, String> {
        let bytes = bytes("tx", &self.tx)?;
        Ok(TxAnswer {
            hash: TxHash::of(&bytes),
            height: self.height,
            index: self.index,
            result: self.tx_result.into_result()?,
            bytes,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireTxPage {
    #[serde(default)]
    txs: Option<Vec<WireTx>>,
    #[serde(default, deserialize_with = "number")]
    total_count: u64,
}

impl WireTxPage {
    pub(super) fn into_page(self) -> Result<TxPage, String> {
        let txs = self.txs.unwrap_or_default().into_iter().map(WireTx::into_answer);
        Ok(TxPage {
            txs: txs.collect::<Result<_, _>>()?,
            total: self.total_count,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireBlockAnswer {
    block: WireBlock,
}

#[derive(Debug, Deserialize)]
struct WireBlock {
    header: WireHeader,
    data: WireData,
}

#[derive(Debug, Deserialize)]
struct WireHeader {
    chain_id: String,
    #[serde(deserialize_with = "number")]
    height: u64,
    time: String,
}

#[derive(Debug, Deserialize)]
struct WireData {
    #[serde(default)]
    txs: Option<Vec<String>>,
}

impl WireBlockAnswer {
    pub(super) fn into_block(self) -> Result<Block, String> {
        let WireBlock { header, data } = self.block;
        let txs = data.txs.unwrap_or_default();
        Ok(Block {
            chain_id: header.chain_id,
            height: header.height,
            time_ms: millis(&header.time)?,
            txs: txs.iter().map(|t| bytes("txs", t)).collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireBlockResults {
    #[serde(default)]
    pub(super) txs_results: Option<Vec<WireExec>>,
}

fn bytes(field: &str, text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|e| format!("{field}: {e}"))
}

/// RFC 3339 to UNIX milliseconds, rounded down.
fn millis(text: &str) -> Result<u64, String> {
    let t: hpc_schema::time::Rfc3339 = text
        .parse()
        .map_err(|e: hpc_schema::time::TimeError| e.to_string())?;
    Ok(t.seconds()
        .0
        .saturating_mul(1_000)
        .saturating_add(u64::from(t.subsec_nanos() / 1_000_000)))
}

/// A u64 that comes as text (int64) or as a number; negative ones (no limit) become 0.
pub(super) fn number<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(u64),
    }
    match Either::deserialize(d)? {
        Either::Number(n) => Ok(n),
        Either::Text(t) if t.starts_with('-') => Ok(0),
        Either::Text(t) => t.parse().map_err(serde::de::Error::custom),
    }
}
