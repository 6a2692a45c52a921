//! Blocks, transactions and results as CometBFT writes them in JSON: 64-bit integers as strings, hashes in
//! upper-case hex, bytes in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::tendermint::block::Header;
use serde_json::{Map, Value, json};

use crate::chain::{Block, BlockId, IndexedTx};
use crate::tx::{self, Event, TxResult};

/// Bytes as base64, `null` if empty (Go's nil slices).
pub(super) fn bytes(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        Value::Null
    } else {
        Value::String(STANDARD.encode(bytes))
    }
}

/// Upper-case hex.
pub(super) fn hex_upper(bytes: impl AsRef<[u8]>) -> String {
    hex::encode_upper(bytes)
}

/// Nanoseconds since the epoch as RFC 3339.
pub(super) fn time(nanos: u64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(nanos))
        .map_or_else(|_| String::new(), |time| time.to_string())
}

pub(super) fn events(events: &[Event]) -> Value {
    let event = |event: &Event| {
        let attributes: Vec<Value> = event
            .attributes
            .iter()
            .map(|a| json!({"key": a.key, "value": a.value, "index": true}))
            .collect();
        json!({"type": event.kind, "attributes": attributes})
    };
    Value::Array(events.iter().map(event).collect())
}

pub(super) fn result(result: &TxResult) -> Value {
    json!({
        "code": result.code,
        "data": bytes(&result.data),
        "log": result.log,
        "info": "",
        "gas_wanted": result.gas_wanted.to_string(),
        "gas_used": result.gas_used.to_string(),
        "events": events(&result.events),
        "codespace": result.codespace,
    })
}

/// A committed transaction, as `tx` and `tx_search` give it.
pub(super) fn indexed(found: &IndexedTx) -> Value {
    json!({
        "hash": hex_upper(tx::hash(&found.tx)),
        "height": found.height.to_string(),
        "index": found.index,
        "tx_result": result(&found.result),
        "tx": STANDARD.encode(&found.tx),
    })
}

/// The value of a Tx event; index 0 is left out.
pub(super) fn tx_event(height: u64, index: u32, bytes: &[u8], outcome: &TxResult) -> Value {
    let mut fields = Map::new();
    fields.insert("height".to_string(), json!(height.to_string()));
    if index > 0 {
        fields.insert("index".to_string(), json!(index));
    }
    fields.insert("tx".to_string(), json!(STANDARD.encode(bytes)));
    fields.insert("result".to_string(), result(outcome));
    json!({"type": "tendermint/event/Tx", "value": {"TxResult": fields}})
}

pub(super) fn block_id(id: Option<&BlockId>) -> Value {
    let hash = id.map(|id| hex_upper(&id.0)).unwrap_or_default();
    json!({"hash": hash, "parts": {"total": u32::from(id.is_some()), "hash": hash}})
}

pub(super) fn header(header: &Header, time_nanos: u64) -> Value {
    let last = header
        .last_block_id
        .map(|id| BlockId(id.hash.as_bytes().to_vec()));
    let hash =
        |hash: Option<cosmrs::tendermint::Hash>| hash.map(|h| hex_upper(h.as_bytes())).unwrap_or_default();
    json!({
        "version": {"block": header.version.block.to_string(), "app": header.version.app.to_string()},
        "chain_id": header.chain_id.as_str(),
        "height": header.height.value().to_string(),
        "time": time(time_nanos),
        "last_block_id": block_id(last.as_ref()),
        "last_commit_hash": hash(header.last_commit_hash),
        "data_hash": hash(header.data_hash),
        "validators_hash": hash(Some(header.validators_hash)),
        "next_validators_hash": hash(Some(header.next_validators_hash)),
        "consensus_hash": hash(Some(header.consensus_hash)),
        "app_hash": hex_upper(header.app_hash.as_bytes()),
        "last_results_hash": hash(header.last_results_hash),
        "evidence_hash": hash(header.evidence_hash),
        "proposer_address": hex_upper(header.proposer_address.as_bytes()),
    })
}

/// A block with its header. The commit of the block before carries no signatures here: the one validator signs when it is
/// asked for a commit (`evidence.rs`).
pub(super) fn block(head: &Header, block: &Block) -> Value {
    let last = head.last_block_id.map(|id| BlockId(id.hash.as_bytes().to_vec()));
    let before = head.height.value().saturating_sub(1);
    let txs: Vec<Value> = block.txs.iter().map(|tx| json!(STANDARD.encode(tx))).collect();
    json!({
        "header": header(head, block.time_nanos),
        "data": {"txs": txs},
        "evidence": {"evidence": []},
        "last_commit": {
            "height": before.to_string(), "round": 0, "block_id": block_id(last.as_ref()), "signatures": [],
        },
    })
}

/// The results of a block, as `block_results` and the NewBlock event give them.
pub(super) fn results(block: &Block) -> Value {
    if block.results.is_empty() {
        Value::Null
    } else {
        Value::Array(block.results.iter().map(result).collect())
    }
}
