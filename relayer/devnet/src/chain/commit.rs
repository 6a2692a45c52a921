//! The one validator's signature over a block, by CometBFT's rules.

use cosmrs::tendermint::block::{Header, Id, Round, parts};
use cosmrs::tendermint::hash::Hash;
use cosmrs::tendermint::vote::{Type, ValidatorIndex, Vote};
use cosmrs::tendermint::{PublicKey, account, validator};
use ed25519_zebra::SigningKey;

use super::header::{validator_address, validator_key, validator_seed};
use crate::error::Error;

/// Its voting power: all there is.
pub(crate) const POWER: u32 = 1;

/// Hash of the validator set, as headers name it.
pub(super) fn validators_hash(chain_id: &str) -> Hash {
    let key = PublicKey::from_raw_ed25519(&validator_key(chain_id));
    let infos = key.map(|key| validator::Info::new(key, POWER.into()));
    validator::Set::without_proposer(infos.into_iter().collect()).hash()
}

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
