//! What others can check without believing this node: a transaction's path in its block, a header and who signed it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::jsonrpc::{Outcome, RpcError};
use super::params::{Params, block_at};
use super::view;
use crate::chain::{self, BlockId, IndexedTx, Node};

/// A transaction with its path in the tree of its block.
pub(super) fn proven(node: &Node, found: &IndexedTx) -> Outcome {
    let missing = || RpcError::internal(format!("block {} is missing", found.height));
    let block = node.snapshot()?.block(found.height)?.ok_or_else(missing)?;
    let leaves: Vec<Vec<u8>> = block.txs.iter().map(|tx| Sha256::digest(tx).to_vec()).collect();
    let index = usize::try_from(found.index).unwrap_or(usize::MAX);
    let base64 = |bytes: &[u8]| Value::String(STANDARD.encode(bytes));
    let leaf: [u8; 32] = Sha256::new()
        .chain_update([0])
        .chain_update(Sha256::digest(&found.tx))
        .finalize()
        .into();
    let aunts: Vec<Value> = chain::merkle_aunts(&leaves, index)
        .iter()
        .map(|a| base64(a))
        .collect();
    let mut answer = view::indexed(found);
    if let Value::Object(map) = &mut answer {
        map.insert(
            "proof".into(),
            json!({
                "root_hash": view::hex_upper(chain::merkle_root(&leaves)),
                "data": base64(&found.tx),
                "proof": {
                    "total": leaves.len().to_string(),
                    "index": found.index.to_string(),
                    "leaf_hash": base64(&leaf),
                    "aunts": aunts,
                },
            }),
        );
    }
    Ok(answer)
}

/// A header and the validator's signature over its hash.
pub(super) fn commit(node: &Node, params: &Params<'_>) -> Outcome {
    let snapshot = node.snapshot()?;
    let (height, block) = block_at(params, &snapshot)?;
    let chain_id = &node.params.chain_id;
    let header = chain::header(chain_id, height, &block, &snapshot.previous(height)?)?;
    let signature = chain::sign(chain_id, &header)?;
    Ok(json!({
        "signed_header": {
            "header": view::header(&header, block.time_nanos),
            "commit": {
                "height": height.to_string(),
                "round": 0,
                "block_id": view::block_id(Some(&BlockId(block.hash.clone()))),
                "signatures": [{
                    "block_id_flag": 2,
                    "validator_address": view::hex_upper(chain::validator_address(chain_id)),
                    "timestamp": view::time(block.time_nanos),
                    "signature": STANDARD.encode(signature),
                }],
            },
        },
        "canonical": true,
    }))
}

/// The one validator, at whatever height.
pub(super) fn validators(node: &Node, params: &Params<'_>) -> Outcome {
    let snapshot = node.snapshot()?;
    let (height, _) = block_at(params, &snapshot)?;
    if params.integer("page")?.is_some_and(|page| page != 1) {
        return Err(RpcError::internal("page should be within [1, 1] range"));
    }
    let chain_id = &node.params.chain_id;
    Ok(json!({
        "block_height": height.to_string(),
        "validators": [{
            "address": view::hex_upper(chain::validator_address(chain_id)),
            "pub_key": {
                "type": "tendermint/PubKeyEd25519",
                "value": view::bytes(&chain::validator_key(chain_id)),
            },
            "voting_power": chain::POWER.to_string(),
            "proposer_priority": "0",
        }],
        "count": "1",
        "total": "1",
    }))
}
