//! Block headers as CometBFT builds them, hashed by the same rule.
//!
//! There is no consensus here: one validator proposes every block, and signs it when it is asked for (see `commit`). The commit
//! that a header names is that of no signatures.

use cosmrs::tendermint::block::header::Version;
use cosmrs::tendermint::block::parts;
use cosmrs::tendermint::block::{Header, Height, Id};
use cosmrs::tendermint::hash::{AppHash, Hash};
use cosmrs::tendermint::{Time, account, merkle};
use prost::Message;
use sha2::{Digest, Sha256};

use super::block::Block;
use super::validator::{validator_address, validators_hash};
use crate::error::Error;
use crate::tx::TxResult;

/// CometBFT's block protocol version in 0.34 to 0.38.
pub(crate) const BLOCK_PROTOCOL: u64 = 11;

/// Hash of a header and of the parts that the block is sent in (the same here, since it is never sent).
#[derive(Clone, Debug)]
pub(crate) struct BlockId(pub(crate) Vec<u8>);

/// Merkle root of leaves, as CometBFT computes it; of none it is the hash of nothing.
pub(crate) fn merkle_root(leaves: &[Vec<u8>]) -> [u8; 32] {
    merkle::simple_hash_from_byte_vectors::<cosmrs::tendermint::crypto::default::Sha256>(leaves)
}

/// The hashes beside the path of leaf `index` in the tree that [`merkle_root`] is the root of, from its neighbour upwards.
pub(crate) fn merkle_aunts(leaves: &[Vec<u8>], index: usize) -> Vec<[u8; 32]> {
    if leaves.len() < 2 || index >= leaves.len() {
        return Vec::new();
    }
    // The left half is the largest power of two that leaves something for the right.
    let middle = leaves.len().next_power_of_two() / 2;
    let (left, right) = leaves.split_at(middle);
    let (mut path, beside) = if index < middle {
        (merkle_aunts(left, index), merkle_root(right))
    } else {
        (merkle_aunts(right, index - middle), merkle_root(left))
    };
    path.push(beside);
    path
}

/// The header of `block` at `height`; `previous` is the block before it.
pub(crate) fn header(
    chain_id: &str,
    height: u64,
    block: &Block,
    previous: &Previous,
) -> Result<Header, Error> {
    let damaged = |error: &dyn std::fmt::Display| Error::Damaged(format!("block {height}: {error}"));
    let seconds = i64::try_from(block.time_nanos / 1_000_000_000).unwrap_or(i64::MAX);
    let nanos = u32::try_from(block.time_nanos % 1_000_000_000).unwrap_or(0);
    let sha256 = |bytes: [u8; 32]| Hash::Sha256(bytes);
    let last_block_id = match &previous.hash {
        Some(hash) => {
            let hash = Hash::try_from(hash.clone()).map_err(|e| damaged(&e))?;
            Some(Id {
                hash,
                part_set_header: parts::Header::new(1, hash).map_err(|e| damaged(&e))?,
            })
        }
        None => None,
    };
    let tx_hashes: Vec<Vec<u8>> = block.txs.iter().map(|tx| Sha256::digest(tx).to_vec()).collect();
    let validators = validators_hash(chain_id);
    Ok(Header {
        version: Version {
            block: BLOCK_PROTOCOL,
            app: 0,
        },
        chain_id: chain_id.parse().map_err(|e| damaged(&e))?,
        height: Height::try_from(height).map_err(|e| damaged(&e))?,
        time: Time::from_unix_timestamp(seconds, nanos).map_err(|e| damaged(&e))?,
        last_block_id,
        last_commit_hash: Some(sha256(merkle_root(&[]))),
        data_hash: Some(sha256(merkle_root(&tx_hashes))),
        validators_hash: validators,
        next_validators_hash: validators,
        consensus_hash: sha256(merkle_root(&[])),
        app_hash: AppHash::try_from(previous.app_hash.clone()).map_err(|e| damaged(&e))?,
        last_results_hash: Some(sha256(previous.results_hash)),
        evidence_hash: Some(sha256(merkle_root(&[]))),
        proposer_address: account::Id::new(validator_address(chain_id)),
    })
}

/// What a header says about the block before it.
#[derive(Clone, Debug)]
pub(crate) struct Previous {
    /// `None` before the first block.
    pub(crate) hash: Option<Vec<u8>>,
    pub(crate) app_hash: Vec<u8>,
    pub(crate) results_hash: [u8; 32],
}

impl Previous {
    /// Before the first block.
    pub(crate) fn genesis(app_hash: Vec<u8>) -> Self {
        Self {
            hash: None,
            app_hash,
            results_hash: merkle_root(&[]),
        }
    }

    pub(crate) fn of(block: &Block) -> Self {
        Self {
            hash: Some(block.hash.clone()),
            app_hash: block.app_hash.clone(),
            results_hash: results_hash(&block.results),
        }
    }
}

/// Merkle root over the parts of results that consensus would cover: code, data, gas.
fn results_hash(results: &[TxResult]) -> [u8; 32] {
    let leaves: Vec<Vec<u8>> = results
        .iter()
        .map(|r| {
            TxResult {
                code: r.code,
                data: r.data.clone(),
                gas_wanted: r.gas_wanted,
                gas_used: r.gas_used,
                ..TxResult::default()
            }
            .encode_to_vec()
        })
        .collect();
    merkle_root(&leaves)
}
