//! The methods of the RPC. Each runs to its end on a blocking thread.

use serde_json::{Value, json};

use super::evidence;
use super::jsonrpc::{Outcome, RpcError};
use super::params::{Params, block_at};
use super::view;
use crate::chain::{self, BlockId, Node, Query};
use crate::error::Error;
use crate::query::{self, Refusal};
use crate::tx;

/// The version that is reported: clients choose their dialect by it, and know 0.38.
pub(super) const VERSION: &str = "0.38.21";

/// Transactions a page of `tx_search`: unless asked for otherwise, and at most.
const PAGE: i64 = 30;
const MAX_PAGE: i64 = 100;

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::internal(error)
    }
}

/// Calls a method that needs no websocket.
pub(super) fn call(node: &Node, method: &str, params: &Value) -> Outcome {
    match method {
        "health" => Params::new(params, &[]).map(|_| json!({})),
        "status" => Params::new(params, &[]).and_then(|_| status(node)),
        "abci_query" => abci_query(node, &Params::new(params, &["path", "data", "height", "prove"])?),
        "broadcast_tx_sync" => broadcast(node, &Params::new(params, &["tx"])?),
        "tx" => find_tx(node, &Params::new(params, &["hash", "prove"])?),
        "tx_search" => search(
            node,
            &Params::new(params, &["query", "prove", "page", "per_page", "order_by"])?,
        ),
        "block" => block(node, &Params::new(params, &["height"])?),
        "commit" => evidence::commit(node, &Params::new(params, &["height"])?),
        "validators" => evidence::validators(node, &Params::new(params, &["height", "page", "per_page"])?),
        "block_results" => block_results(node, &Params::new(params, &["height"])?),
        _ => Err(RpcError::method_not_found()),
    }
}

fn status(node: &Node) -> Outcome {
    let snapshot = node.snapshot()?;
    let chain_id = &node.params.chain_id;
    let first = snapshot.block(1)?.unwrap_or_default();
    let before_first = snapshot.previous(1)?;
    let before = snapshot.previous(snapshot.tip.height)?;
    let tip = &snapshot.tip;
    let address = view::hex_upper(chain::validator_address(chain_id));
    Ok(json!({
        "node_info": {
            "protocol_version": {"p2p": "8", "block": "11", "app": "0"},
            "id": hex::encode(chain::validator_address(chain_id)),
            "listen_addr": "tcp://127.0.0.1:0",
            "network": chain_id,
            "version": VERSION,
            "channels": "",
            "moniker": "virtengine-devnet",
            "other": {"tx_index": "on", "rpc_address": "tcp://127.0.0.1:0"},
        },
        "sync_info": {
            "latest_block_hash": view::hex_upper(tip.previous.hash.as_deref().unwrap_or_default()),
            "latest_app_hash": view::hex_upper(&before.app_hash),
            "latest_block_height": tip.height.to_string(),
            "latest_block_time": view::time(tip.time_nanos),
            "earliest_block_hash": view::hex_upper(&first.hash),
            "earliest_app_hash": view::hex_upper(&before_first.app_hash),
            "earliest_block_height": "1",
            "earliest_block_time": view::time(first.time_nanos),
            "catching_up": false,
        },
        "validator_info": {
            "address": address,
            "pub_key": {
                "type": "tendermint/PubKeyEd25519",
                "value": view::bytes(&chain::validator_key(chain_id)),
            },
            "voting_power": "1",
        },
    }))
}

fn abci_query(node: &Node, params: &Params<'_>) -> Outcome {
    let path = params.text("path")?;
    let data = params.hex("data")?;
    let height = params.integer("height")?.unwrap_or(0);
    let snapshot = node.snapshot()?;
    let tip = snapshot.tip.height;
    // The height of the state that was asked; 0 if no module was.
    let mut answered = 0;
    let outcome = match u64::try_from(height) {
        Err(_) => Err(tx::TxError::invalid_request(
            "cannot query with height < 0; please provide a valid height",
        )),
        Ok(height) if height > tip => Err(tx::TxError::invalid_height(
            "cannot query with height in the future; please provide a valid height",
        )),
        Ok(height) if height != 0 && height != tip => Err(tx::TxError::invalid_request(format!(
            "failed to load state at height {height}; the embedded chain keeps the newest state only (latest height: {tip})"
        ))),
        Ok(_) => match query::answer(node, &snapshot, path, &data) {
            Ok(value) => {
                answered = tip;
                Ok(value)
            }
            Err(Refusal::Query(error)) => {
                answered = tip;
                Err(error)
            }
            Err(Refusal::Path(error)) => Err(error),
            Err(Refusal::Node(error)) => return Err(error.into()),
        },
    };
    let (code, codespace, log, value) = match outcome {
        Ok(value) => (0, "", String::new(), value),
        Err(error) => (error.code, error.codespace, error.log, Vec::new()),
    };
    Ok(json!({"response": {
        "code": code,
        "log": log,
        "info": "",
        "index": "0",
        "key": null,
        "value": view::bytes(&value),
        "proofOps": null,
        "height": answered.to_string(),
        "codespace": codespace,
    }}))
}

fn broadcast(node: &Node, params: &Params<'_>) -> Outcome {
    let bytes = params.base64("tx")?;
    let hash = view::hex_upper(tx::hash(&bytes));
    let checked = node.offer(bytes)?.map_err(RpcError::internal)?;
    let (code, codespace, log) = match checked {
        Ok(()) => (0, "", String::new()),
        Err(error) => (error.code, error.codespace, error.log),
    };
    Ok(json!({"code": code, "data": "", "log": log, "codespace": codespace, "hash": hash}))
}

fn find_tx(node: &Node, params: &Params<'_>) -> Outcome {
    let hash = params.base64("hash")?;
    if hash.is_empty() {
        return Err(RpcError::internal("transaction hash cannot be empty"));
    }
    let found = match <&[u8; 32]>::try_from(hash.as_slice()) {
        Ok(hash) => node.snapshot()?.tx(hash)?,
        Err(_) => None,
    };
    match found {
        Some(found) if params.flag("prove")? => evidence::proven(node, &found),
        Some(found) => Ok(view::indexed(&found)),
        None => Err(RpcError::internal(format!(
            "tx ({}) not found",
            view::hex_upper(hash)
        ))),
    }
}

fn search(node: &Node, params: &Params<'_>) -> Outcome {
    let query = Query::parse(params.text("query")?).map_err(RpcError::internal)?;
    let snapshot = node.snapshot()?;
    let mut found = query.search(&snapshot).map_err(RpcError::internal)?;
    match params.text("order_by")? {
        "" | "asc" => {}
        "desc" => found.reverse(),
        _ => {
            return Err(RpcError::internal(
                "expected order_by to be either `asc` or `desc` or empty",
            ));
        }
    }
    let per_page = match params.integer("per_page")? {
        Some(n) if n >= 1 => n.min(MAX_PAGE),
        _ => PAGE,
    };
    let total = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let pages = ((total - 1).div_euclid(per_page) + 1).max(1);
    let page = params.integer("page")?.unwrap_or(1);
    if page < 1 || page > pages {
        return Err(RpcError::internal(format!(
            "page should be within [1, {pages}] range, given {page}"
        )));
    }
    let skip = usize::try_from((page - 1).saturating_mul(per_page)).unwrap_or(usize::MAX);
    let take = usize::try_from(per_page).unwrap_or(0);
    let txs: Vec<Value> = found.iter().skip(skip).take(take).map(view::indexed).collect();
    Ok(json!({"txs": txs, "total_count": total.to_string()}))
}

fn block(node: &Node, params: &Params<'_>) -> Outcome {
    let snapshot = node.snapshot()?;
    let (height, block) = block_at(params, &snapshot)?;
    let header = chain::header(&node.params.chain_id, height, &block, &snapshot.previous(height)?)?;
    Ok(json!({
        "block_id": view::block_id(Some(&BlockId(block.hash.clone()))),
        "block": view::block(&header, &block),
    }))
}

fn block_results(node: &Node, params: &Params<'_>) -> Outcome {
    let snapshot = node.snapshot()?;
    let (height, block) = block_at(params, &snapshot)?;
    Ok(json!({
        "height": height.to_string(),
        "txs_results": view::results(&block),
        "finalize_block_events": [],
        "validator_updates": [],
        "consensus_param_updates": consensus_params(node),
        "app_hash": view::bytes(&block.app_hash),
    }))
}

/// Consensus parameters as CometBFT writes them in JSON.
pub(super) fn consensus_params(node: &Node) -> Value {
    let gas = node
        .params
        .rules
        .max_block_gas
        .map_or_else(|| "-1".to_string(), |gas| gas.to_string());
    json!({
        "block": {"max_bytes": node.params.block_bytes.to_string(), "max_gas": gas},
        "evidence": {"max_age_num_blocks": "100000", "max_age_duration": "172800000000000", "max_bytes": "1048576"},
        "validator": {"pub_key_types": ["ed25519"]},
        "version": {},
        "abci": {"vote_extensions_enable_height": "0"},
    })
}
