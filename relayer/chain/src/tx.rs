//! Building and signing transactions: SIGN_MODE_DIRECT, a timeout height always, the hash computed here.

use cosmrs::Any;
use cosmrs::proto::cosmos::base::v1beta1::Coin as ProtoCoin;
use cosmrs::proto::cosmos::tx::v1beta1::{
    AuthInfo, Fee as ProtoFee, ModeInfo, SignDoc, SignerInfo, TxBody, TxRaw, mode_info,
};
use cosmrs::proto::traits::{Message, Name};

use crate::gas::Coin;
use crate::hash::TxHash;
use crate::keys::{KeyError, LocalKey, Signer};

/// SIGN_MODE_DIRECT of `cosmos.tx.signing.v1beta1`.
const DIRECT: i32 = 1;
/// Type URL of the public keys of ordinary accounts.
const SECP256K1_PUBKEY: &str = "/cosmos.crypto.secp256k1.PubKey";

/// What a transaction pays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fee {
    /// Coins; empty where the chain asks for nothing.
    pub amount: Vec<Coin>,
    /// Most gas it may use.
    pub gas_limit: u64,
    /// Address of another account that pays, by a fee grant to the signer.
    pub granter: Option<String>,
}

/// A transaction before it is signed.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsigned {
    /// Messages in order; the signer is the sender of each.
    pub messages: Vec<Any>,
    /// For people.
    pub memo: String,
    /// The last height at which it may execute; never 0, which would mean for ever.
    pub timeout_height: std::num::NonZeroU64,
    /// What it pays.
    pub fee: Fee,
}

/// Who signs, and for which chain.
#[derive(Debug, Clone, Copy)]
pub struct SignerData<'a> {
    /// Chain id.
    pub chain_id: &'a str,
    /// Any u64; SDK 0.54 sets the top bit.
    pub account_number: u64,
    /// The account's next sequence.
    pub sequence: u64,
}

/// A signed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The bytes to broadcast.
    pub bytes: Vec<u8>,
    /// Their hash.
    pub hash: TxHash,
}

/// Signs.
///
/// # Errors
/// [`KeyError::Sign`] if the key fails.
pub fn sign(key: &LocalKey, signer: SignerData<'_>, tx: &Unsigned) -> Result<Signed, KeyError> {
    let draft = Draft::new(key.public_key(), signer, tx);
    let signature = key.sign(&draft.document)?;
    Ok(draft.signed(signature))
}

/// Signs with a key that may be in a device.
///
/// # Errors
/// [`KeyError::Sign`], [`KeyError::Hsm`].
pub async fn sign_with(key: &dyn Signer, signer: SignerData<'_>, tx: &Unsigned) -> Result<Signed, KeyError> {
    let draft = Draft::new(key.public_key(), signer, tx);
    let signature = key.sign(&draft.document).await?;
    Ok(draft.signed(signature))
}

/// A transaction without its signature.
struct Draft {
    raw: TxRaw,
    /// What is signed.
    document: Vec<u8>,
}

impl Draft {
    fn new(public_key: &[u8; 33], signer: SignerData<'_>, tx: &Unsigned) -> Self {
        let raw = raw(public_key, signer.sequence, tx);
        let document = SignDoc {
            body_bytes: raw.body_bytes.clone(),
            auth_info_bytes: raw.auth_info_bytes.clone(),
            chain_id: signer.chain_id.to_owned(),
            account_number: signer.account_number,
        };
        Self {
            document: document.encode_to_vec(),
            raw,
        }
    }

    fn signed(self, signature: [u8; 64]) -> Signed {
        let raw = TxRaw {
            signatures: vec![signature.to_vec()],
            ..self.raw
        };
        let bytes = raw.encode_to_vec();
        Signed {
            hash: TxHash::of(&bytes),
            bytes,
        }
    }
}

/// The bytes that a simulation takes: everything but the signature, which it does not check.
#[must_use]
pub fn simulation_bytes(key: &dyn Signer, sequence: u64, tx: &Unsigned) -> Vec<u8> {
    raw(key.public_key(), sequence, tx).encode_to_vec()
}

/// The gas limit of a transaction; none: these bytes are none.
#[must_use]
pub fn gas_limit(tx: &[u8]) -> Option<u64> {
    let raw = TxRaw::decode(tx).ok()?;
    let auth = AuthInfo::decode(raw.auth_info_bytes.as_slice()).ok()?;
    Some(auth.fee?.gas_limit)
}

fn raw(public_key: &[u8; 33], sequence: u64, tx: &Unsigned) -> TxRaw {
    TxRaw {
        body_bytes: body(tx).encode_to_vec(),
        auth_info_bytes: auth_info(public_key, sequence, &tx.fee).encode_to_vec(),
        signatures: vec![Vec::new()],
    }
}

/// A protobuf message with its type URL.
#[must_use]
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: format!("/{}", M::full_name()),
        value: message.encode_to_vec(),
    }
}

/// Coins in protobuf, sorted by denomination as the SDK demands.
#[must_use]
pub fn proto_coins(coins: &[Coin]) -> Vec<ProtoCoin> {
    let mut coins: Vec<ProtoCoin> = coins
        .iter()
        .map(|c| ProtoCoin {
            denom: c.denom.clone(),
            amount: c.amount.to_string(),
        })
        .collect();
    coins.sort_by(|a, b| a.denom.cmp(&b.denom));
    coins
}

fn body(tx: &Unsigned) -> TxBody {
    TxBody {
        messages: tx.messages.clone(),
        memo: tx.memo.clone(),
        timeout_height: tx.timeout_height.get(),
        ..TxBody::default()
    }
}

fn auth_info(public_key: &[u8; 33], sequence: u64, fee: &Fee) -> AuthInfo {
    let public_key = cosmrs::proto::cosmos::crypto::secp256k1::PubKey {
        key: public_key.to_vec(),
    };
    AuthInfo {
        signer_infos: vec![SignerInfo {
            public_key: Some(Any {
                type_url: SECP256K1_PUBKEY.to_owned(),
                value: public_key.encode_to_vec(),
            }),
            mode_info: Some(ModeInfo {
                sum: Some(mode_info::Sum::Single(mode_info::Single { mode: DIRECT })),
            }),
            sequence,
        }],
        fee: Some(ProtoFee {
            amount: proto_coins(&fee.amount),
            gas_limit: fee.gas_limit,
            granter: fee.granter.clone().unwrap_or_default(),
            ..ProtoFee::default()
        }),
        ..AuthInfo::default()
    }
}

#[cfg(test)]
mod tests;
