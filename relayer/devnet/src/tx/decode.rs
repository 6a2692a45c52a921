//! From bytes to a transaction whose every field is known.

use cosmrs::proto::cosmos::tx::v1beta1::{AuthInfo, Fee, TxBody, TxRaw};
use sha2::{Digest, Sha256};

use super::TxError;
use super::message::Msg;
use super::proto::strict;
use crate::address::{self, Address};
use crate::coin::Coins;

/// The hash by which a transaction is found: SHA-256 of its bytes.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A transaction that parses, with the parts that the later checks use.
#[derive(Debug)]
pub(crate) struct DecodedTx {
    pub(crate) raw: TxRaw,
    pub(crate) body: TxBody,
    pub(crate) auth: AuthInfo,
    pub(crate) fee: Fee,
    pub(crate) fee_coins: Coins,
    pub(crate) msgs: Vec<Msg>,
    /// Who must sign, in order, each once: the senders of the messages, then the fee payer.
    pub(crate) signers: Vec<Address>,
    pub(crate) fee_payer: Address,
    pub(crate) hash: [u8; 32],
    /// Length of the transaction in bytes.
    pub(crate) size: usize,
}

/// The largest gas limit that the SDK accepts (2^63 − 1).
const MAX_GAS: u64 = u64::MAX >> 1;

impl DecodedTx {
    /// Decodes and checks all that can be checked without state.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, TxError> {
        let raw: TxRaw = strict(bytes, "TxRaw")?;
        let body: TxBody = strict(&raw.body_bytes, "TxBody")?;
        let auth: AuthInfo = strict(&raw.auth_info_bytes, "AuthInfo")?;
        let msgs = body
            .messages
            .iter()
            .map(Msg::decode)
            .collect::<Result<Vec<_>, _>>()?;
        if msgs.is_empty() {
            return Err(TxError::invalid_request("must contain at least one message"));
        }
        let fee = auth
            .fee
            .clone()
            .ok_or_else(|| TxError::tx_decode("missing fee"))?;
        let mut signers: Vec<Address> = Vec::new();
        for msg in &msgs {
            msg.validate()?;
            let sender = msg.sender()?;
            if !signers.contains(&sender) {
                signers.push(sender);
            }
        }
        let first = signers
            .first()
            .cloned()
            .ok_or_else(|| TxError::no_signatures("no signers"))?;
        let fee_payer = if fee.payer.is_empty() {
            first
        } else {
            address::parse(&fee.payer)?
        };
        if !signers.contains(&fee_payer) {
            signers.push(fee_payer.clone());
        }
        let fee_coins = Coins::from_proto(&nonzero(&fee))
            .map_err(|error| TxError::insufficient_fee(format!("invalid fee provided: {}", error.log)))?;
        let tx = Self {
            body,
            auth,
            fee,
            fee_coins,
            msgs,
            signers,
            fee_payer,
            hash: hash(bytes),
            size: bytes.len(),
            raw,
        };
        tx.validate_basic()?;
        Ok(tx)
    }

    fn validate_basic(&self) -> Result<(), TxError> {
        if !self.body.extension_options.is_empty() {
            return Err(TxError::unknown_extension(
                "the embedded chain knows no extension options",
            ));
        }
        if self.fee.gas_limit > MAX_GAS {
            return Err(TxError::invalid_request(format!(
                "invalid gas supplied; {} > {MAX_GAS}",
                self.fee.gas_limit
            )));
        }
        if !self.fee.granter.is_empty() {
            return Err(TxError::invalid_request("fee grants are not enabled"));
        }
        if self.raw.signatures.is_empty() {
            return Err(TxError::no_signatures("no signatures"));
        }
        if self.raw.signatures.len() != self.signers.len()
            || self.auth.signer_infos.len() != self.signers.len()
        {
            return Err(TxError::unauthorized(format!(
                "wrong number of signers; expected {}, got {}",
                self.signers.len(),
                self.raw.signatures.len()
            )));
        }
        Ok(())
    }
}

/// Some clients state a fee of zero as `0stake`; the SDK drops zeros too.
fn nonzero(fee: &Fee) -> Vec<cosmrs::proto::cosmos::base::v1beta1::Coin> {
    fee.amount
        .iter()
        .filter(|coin| coin.amount != "0")
        .cloned()
        .collect()
}
