//! The one validator.

use cosmrs::tendermint::hash::Hash;
use cosmrs::tendermint::{PublicKey, validator};
use ed25519_zebra::{SigningKey, VerificationKey};
use sha2::{Digest, Sha256};

/// Its voting power: all there is.
pub(crate) const POWER: u32 = 1;

/// The secret of the validator; derived from the chain id, so it protects nothing.
pub(super) fn validator_seed(chain_id: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"virtengine-devnet validator ")
        .chain_update(chain_id)
        .finalize()
        .into()
}

/// The key of the validator that proposes and signs blocks.
pub(crate) fn validator_key(chain_id: &str) -> [u8; 32] {
    VerificationKey::from(&SigningKey::from(validator_seed(chain_id))).into()
}

/// Address of that validator: the first 20 bytes of its key's hash.
pub(crate) fn validator_address(chain_id: &str) -> [u8; 20] {
    let digest: [u8; 32] = Sha256::digest(validator_key(chain_id)).into();
    digest.first_chunk().copied().unwrap_or([0; 20])
}

/// Hash of the validator set, as headers name it.
pub(super) fn validators_hash(chain_id: &str) -> Hash {
    let key = PublicKey::from_raw_ed25519(&validator_key(chain_id));
    let infos = key.map(|key| validator::Info::new(key, POWER.into()));
    validator::Set::without_proposer(infos.into_iter().collect()).hash()
}
