//! The one validator's signature over a block, by CometBFT's rules.

use cosmrs::tendermint::account;
use cosmrs::tendermint::block::{Header, Id, Round, parts};
use cosmrs::tendermint::vote::{Type, ValidatorIndex, Vote};
use ed25519_zebra::SigningKey;

use super::validator::{validator_address, validator_seed};
use crate::error::Error;

/// The signature of a precommit for this header; its time is the block's own.
pub(crate) fn sign(chain_id: &str, header: &Header) -> Result<[u8; 64], Error> {
    let damaged = |e: &dyn std::fmt::Display| Error::Damaged(format!("block {}: {e}", header.height));
    let hash = header.hash();
    let vote = Vote {
        vote_type: Type::Precommit,
        height: header.height,
        round: Round::default(),
        block_id: Some(Id {
            hash,
            part_set_header: parts::Header::new(1, hash).map_err(|e| damaged(&e))?,
        }),
        timestamp: Some(header.time),
        validator_address: account::Id::new(validator_address(chain_id)),
        validator_index: ValidatorIndex::try_from(0u32).map_err(|e| damaged(&e))?,
        signature: None,
        extension: Vec::new(),
        extension_signature: None,
    };
    let bytes = vote.into_signable_vec(header.chain_id.clone());
    Ok(SigningKey::from(validator_seed(chain_id)).sign(&bytes).into())
}
