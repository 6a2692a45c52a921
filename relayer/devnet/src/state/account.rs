//! Accounts: number, sequence, public key.

use cosmrs::proto::Any;
use cosmrs::proto::cosmos::auth::v1beta1::BaseAccount;
use cosmrs::proto::cosmos::crypto::secp256k1::PubKey;
use cosmrs::proto::traits::Message;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::next_id;
use crate::address;
use crate::kv::{Kv, Layer};

/// How accounts made after genesis are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbering {
    /// 0, 1, 2, …
    #[default]
    Sequential,
    /// As SDK 0.54 draws them: a hash with the top bit set, so that they need all 64 bits.
    Sdk54,
}

/// What a hashed account number is drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberSource<'a> {
    pub(crate) numbering: Numbering,
    pub(crate) height: u64,
    pub(crate) app_hash: &'a [u8],
    pub(crate) tx_index: u64,
}

/// An account of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) number: u64,
    pub(crate) sequence: u64,
    /// Compressed secp256k1 key, known from the account's first transaction on.
    pub(crate) pubkey: Option<[u8; 33]>,
}

impl Account {
    pub(crate) fn load(state: &dyn Kv, address: &[u8]) -> Option<Self> {
        let value = state.get(&key(address))?;
        let (number, rest) = value.split_first_chunk()?;
        let (sequence, pubkey) = rest.split_first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            sequence: u64::from_be_bytes(*sequence),
            pubkey: pubkey.try_into().ok(),
        })
    }

    pub(crate) fn save(&self, state: &mut Layer<'_>, address: &[u8]) {
        let mut value = Vec::with_capacity(49);
        value.extend_from_slice(&self.number.to_be_bytes());
        value.extend_from_slice(&self.sequence.to_be_bytes());
        value.extend_from_slice(self.pubkey.as_ref().map_or(&[], |key| key.as_slice()));
        state.set(&key(address), &value);
    }

    /// Makes the account if it is not there.
    pub(crate) fn ensure(state: &mut Layer<'_>, address: &[u8], source: NumberSource<'_>) {
        if state.get(&key(address)).is_some() {
            return;
        }
        let number = match source.numbering {
            Numbering::Sequential => next_id(state, "account").saturating_sub(1),
            Numbering::Sdk54 => hashed_number(address, source),
        };
        Self {
            number,
            sequence: 0,
            pubkey: None,
        }
        .save(state, address);
    }

    /// The account as `cosmos.auth.v1beta1.BaseAccount`.
    pub(crate) fn to_any(&self, address: &[u8]) -> Any {
        let account = BaseAccount {
            address: address::text(address),
            pub_key: self.pubkey.as_ref().map(pubkey_any),
            account_number: self.number,
            sequence: self.sequence,
        };
        Any {
            type_url: "/cosmos.auth.v1beta1.BaseAccount".to_string(),
            value: account.encode_to_vec(),
        }
    }
}

fn pubkey_any(key: &[u8; 33]) -> Any {
    Any {
        type_url: "/cosmos.crypto.secp256k1.PubKey".to_string(),
        value: PubKey { key: key.to_vec() }.encode_to_vec(),
    }
}

fn key(address: &[u8]) -> Vec<u8> {
    [b"A", address].concat()
}

fn hashed_number(address: &[u8], source: NumberSource<'_>) -> u64 {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(source.height.to_be_bytes())
        .chain_update(source.app_hash)
        .chain_update(source.tx_index.to_be_bytes())
        .chain_update(address)
        .finalize()
        .into();
    let (first, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_be_bytes(*first) | (1 << 63)
}
