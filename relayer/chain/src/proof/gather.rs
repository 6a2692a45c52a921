use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Inclusion;
use super::merkle::{aunts, leaf};
use crate::hash::TxHash;
use crate::rpc::{Client, Endpoints, RpcError};

/// Everything about a transaction's block that a proof needs. Nodes forget it; whoever keeps it need not ask again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Block.
    pub height: u64,
    /// The transaction, base64.
    pub tx: String,
    /// Where it is in the block.
    pub inclusion: Inclusion,
    /// Header and signatures.
    pub signed_header: Value,
    /// Who signed.
    pub validators: Value,
}

/// Asks one endpoint after the other for a transaction with its proof, its block's header, signatures and validators, until
/// one gives what `holds`; that is told the endpoint's name as well. Of a transaction whose `height` is known an endpoint needs
/// no index: its block will do.
///
/// # Errors
/// [`RpcError`]; [`RpcError::Behind`] if no endpoint has them (any more, or yet).
pub async fn gather(
    endpoints: &Endpoints,
    hash: TxHash,
    height: Option<u64>,
    holds: impl Fn(&str, &Evidence) -> bool,
) -> Result<Evidence, RpcError> {
    let holds = &holds;
    endpoints
        .ask(|c: Client| async move {
            // No failure of the endpoint: for other questions it may be as good as any.
            let not_here = || RpcError::Behind {
                endpoint: c.name().to_owned(),
                height: 0,
                wanted: 0,
            };
            match of_one(&c, hash, height).await {
                Err(RpcError::Response { .. }) | Ok(None) => Err(not_here()),
                Ok(Some(evidence)) if !holds(c.name(), &evidence) => Err(not_here()),
                Ok(Some(evidence)) => Ok(evidence),
                Err(e) => Err(e),
            }
        })
        .await
}

async fn of_one(client: &Client, hash: TxHash, known: Option<u64>) -> Result<Option<Evidence>, RpcError> {
    let (height, bytes, inclusion) = match (client.tx_with_proof(hash).await, known) {
        // It keeps no index, or this one lacks it.
        (Err(RpcError::Response { .. }), Some(height)) => {
            let block = client.block(Some(height)).await?;
            let Some((bytes, inclusion)) = in_block(block.txs, hash) else {
                return Ok(None);
            };
            (height, bytes, inclusion)
        }
        (found, _) => found?,
    };
    let (signed_header, validators) = (client.commit(height).await?, client.validators(height).await?);
    Ok(Some(Evidence {
        height,
        tx: STANDARD.encode(bytes),
        inclusion,
        signed_header,
        validators,
    }))
}

/// The transaction among those of a block, and its path in their tree.
fn in_block(mut txs: Vec<Vec<u8>>, hash: TxHash) -> Option<(Vec<u8>, Inclusion)> {
    let place = txs.iter().position(|tx| TxHash::of(tx) == hash)?;
    // A leaf is the hash of the transaction's hash.
    let leaves: Vec<[u8; 32]> = txs.iter().map(|tx| leaf(&Sha256::digest(tx))).collect();
    let path = aunts(&leaves, place);
    let inclusion = Inclusion {
        index: u64::try_from(place).ok()?,
        total: u64::try_from(leaves.len()).ok()?,
        aunts: path.iter().map(|hash| STANDARD.encode(hash)).collect(),
    };
    Some((txs.swap_remove(place), inclusion))
}

#[cfg(test)]
mod tests {
    use cosmrs::tendermint::crypto::default::Sha256 as TmSha256;
    use cosmrs::tendermint::merkle::simple_hash_from_byte_vectors;
    use serde_json::json;

    use super::super::merkle::root_of;
    use super::*;
    use crate::rpc::ClientOptions;
    use crate::rpc::stand_in::{asks, endpoint};

    #[tokio::test]
    async fn where_no_index_has_a_transaction_its_path_is_worked_out_from_its_block() {
        let txs: Vec<Vec<u8>> = (1..=5).map(|n| vec![n; 40]).collect();
        let texts: Vec<String> = txs.iter().map(|tx| STANDARD.encode(tx)).collect();
        let url = endpoint(move |request| {
            let answer = if asks(request, "tx") {
                json!({ "error": { "code": -32603, "message": "Internal error", "data": "transaction indexing is disabled" } })
            } else if asks(request, "block") && asks(request, "9") {
                let header = json!({ "chain_id": "chain-1", "height": "9", "time": "2026-01-30T14:05:00Z" });
                json!({ "result": { "block": { "header": header, "data": { "txs": texts } } } })
            } else if asks(request, "block") {
                json!({ "error": { "code": -32603, "message": "Internal error", "data": "height 8 is not available, lowest height is 9" } })
            } else if asks(request, "commit") {
                json!({ "result": { "signed_header": { "header": 1 } } })
            } else {
                json!({ "result": { "validators": [{}], "total": "1" } })
            };
            Some(answer.to_string())
        })
        .await;
        let endpoints = Endpoints::new(&[url], ClientOptions::default()).unwrap();
        let gathered = async |hash: TxHash, height| gather(&endpoints, hash, height, |_, _| true).await;
        let digests: Vec<Vec<u8>> = txs.iter().map(|tx| Sha256::digest(tx).to_vec()).collect();
        let root = simple_hash_from_byte_vectors::<TmSha256>(&digests);
        for (tx, digest) in txs.iter().zip(&digests) {
            let found = gathered(TxHash::of(tx), Some(9)).await.unwrap();
            assert_eq!((found.height, &found.tx), (9, &STANDARD.encode(tx)));
            assert_eq!(found.signed_header, json!({ "header": 1 }));
            let Inclusion { index, total, aunts } = found.inclusion;
            let aunts: Vec<[u8; 32]> = aunts
                .iter()
                .map(|a| STANDARD.decode(a).unwrap().try_into().unwrap())
                .collect();
            assert_eq!(root_of(leaf(digest), index, total, &aunts), Some(root));
        }
        // Not without its height, nor from another block.
        for (hash, height) in [
            (TxHash::of(&txs[0]), None),
            (TxHash::of(&txs[0]), Some(8)),
            (TxHash::of(b"other"), Some(9)),
        ] {
            let lacks = gathered(hash, height).await;
            assert!(matches!(lacks, Err(RpcError::Behind { .. })), "{lacks:?}");
        }
    }
}
