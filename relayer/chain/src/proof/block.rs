//! The block's part: the transaction under the header's data hash, the header's hash under the validators' signatures.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cosmrs::tendermint::block::CommitSig;
use cosmrs::tendermint::block::signed_header::SignedHeader;
use cosmrs::tendermint::vote::{Type, ValidatorIndex, Vote};
use cosmrs::tendermint::{Hash, PublicKey, chain, validator};
use hpc_schema::key::{Verifier as _, ZebraVerifier};
use sha2::{Digest as _, Sha256};

use super::merkle::{leaf, root_of};
use super::{Proof, ProofError};

/// Validators of one chain.
const MOST_VALIDATORS: usize = 10_000;

/// A header whose hash enough validators have signed.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) header: SignedHeader,
    pub(super) validators_hash: Hash,
    pub(super) validators: usize,
    pub(super) signed_power: u64,
    pub(super) total_power: u64,
}

/// The header is of this chain, and more than two thirds of the voting power of `validators` signed its hash.
pub(super) fn signed(proof: &Proof) -> Result<Signed, ProofError> {
    let part = |what: &'static str| move |e: String| ProofError::Part(what, e);
    let header: SignedHeader = serde_json::from_value(proof.signed_header.clone())
        .map_err(|e| part("signed_header")(format!("cannot be read: {e}")))?;
    let validators: Vec<validator::Info> = serde_json::from_value(proof.validators.clone())
        .map_err(|e| part("validators")(format!("cannot be read: {e}")))?;
    if validators.is_empty() || validators.len() > MOST_VALIDATORS {
        return Err(part("validators")("must be 1 to 10000".into()));
    }
    let (head, commit) = (header.header(), header.commit());
    if head.chain_id.as_str() != proof.chain_id {
        return Err(part("signed_header.header.chain_id")(format!(
            "is {}, not {}",
            head.chain_id, proof.chain_id
        )));
    }
    if commit.height != head.height || commit.block_id.hash != head.hash() {
        return Err(part("signed_header.commit")(
            "is of another block than the header".into(),
        ));
    }
    let set = validator::Set::without_proposer(validators.clone());
    let validators_hash = set.hash();
    if validators_hash != head.validators_hash {
        return Err(part("validators")("are not those that the header names".into()));
    }
    let chain_id: chain::Id = head.chain_id.clone();
    let (mut signed_power, mut seen) = (0u64, BTreeSet::new());
    let total_power = validators
        .iter()
        .fold(0u64, |sum, v| sum.saturating_add(v.power()));
    for (index, signature) in commit.signatures.iter().enumerate() {
        let CommitSig::BlockIdFlagCommit {
            validator_address,
            timestamp,
            signature: Some(signature),
        } = signature
        else {
            continue;
        };
        let known = validators.iter().find(|v| v.address == *validator_address);
        let Some(validator) = known.filter(|_| seen.insert(*validator_address)) else {
            return Err(part("signed_header.commit")(
                "names an unknown validator, or one twice".into(),
            ));
        };
        let index =
            ValidatorIndex::try_from(index).map_err(|e| part("signed_header.commit")(e.to_string()))?;
        let vote = Vote {
            vote_type: Type::Precommit,
            height: commit.height,
            round: commit.round,
            block_id: Some(commit.block_id),
            timestamp: Some(*timestamp),
            validator_address: *validator_address,
            validator_index: index,
            signature: None,
            extension: Vec::new(),
            extension_signature: None,
        };
        let bytes = vote.into_signable_vec(chain_id.clone());
        if !verifies(&validator.pub_key, &bytes, signature.as_bytes()) {
            return Err(part("signed_header.commit")(format!(
                "the signature of validator {validator_address} does not verify"
            )));
        }
        signed_power = signed_power.saturating_add(validator.power());
    }
    if u128::from(signed_power) * 3 <= u128::from(total_power) * 2 {
        return Err(part("signed_header.commit")(format!(
            "is signed by {signed_power} of {total_power} voting power, which is not more than two thirds"
        )));
    }
    Ok(Signed {
        header,
        validators_hash,
        validators: validators.len(),
        signed_power,
        total_power,
    })
}

fn verifies(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    let (Some(key), Ok(signature)) = (key.ed25519(), <[u8; 64]>::try_from(signature)) else {
        return false;
    };
    <[u8; 32]>::try_from(key.as_bytes()).is_ok_and(|key| ZebraVerifier.verify(message, &signature, &key))
}

/// The transaction is among those that the header's data hash covers.
pub(super) fn included(proof: &Proof, tx: &[u8], signed: &Signed) -> Result<(), ProofError> {
    let bad = |what: &str| ProofError::Part("inclusion", what.to_owned());
    let aunts: Option<Vec<[u8; 32]>> = proof
        .inclusion
        .aunts
        .iter()
        .map(|a| STANDARD.decode(a).ok()?.try_into().ok())
        .collect();
    let aunts = aunts.ok_or_else(|| bad("aunts are not base64 of 32 bytes each"))?;
    // A leaf is the hash of the transaction's hash.
    let leaf = leaf(&Sha256::digest(tx));
    let root = root_of(leaf, proof.inclusion.index, proof.inclusion.total, &aunts)
        .ok_or_else(|| bad("is no path in a tree of this size"))?;
    if signed.header.header().data_hash != Some(Hash::Sha256(root)) {
        return Err(bad(
            "does not lead from the transaction to the header's data_hash",
        ));
    }
    Ok(())
}
