//! The checks before any message runs, in the Cosmos SDK's order.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::Any;
use cosmrs::proto::cosmos::crypto::secp256k1::PubKey;
use cosmrs::proto::cosmos::tx::signing::v1beta1::SignMode;
use cosmrs::proto::cosmos::tx::v1beta1::{SignDoc, SignerInfo, mode_info};
use cosmrs::proto::traits::Message;
use k256::ecdsa::signature::Verifier;
use k256::ecdsa::{Signature, VerifyingKey};

use super::TxError;
use super::context::{BlockContext, Rules};
use super::decode::DecodedTx;
use super::event::{self, Event};
use super::proto::{Fields, value};
use crate::address;
use crate::gas::{self, Meter};
use crate::kv::Layer;
use crate::state::{Account, transfer};

/// Why the checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Before a transaction enters the mempool.
    Check,
    /// After a block, for what is still in the mempool: signatures are known to be good.
    Recheck,
    /// In a block.
    Deliver,
    /// To estimate gas: no signature, no gas limit.
    Simulate,
}

/// Runs the checks and makes their changes (fee, keys, sequences) in `state`.
pub(super) fn run(
    context: &BlockContext<'_>,
    rules: &Rules,
    mode: Mode,
    state: &mut Layer<'_>,
    tx: &DecodedTx,
    meter: &Meter,
) -> Result<Vec<Event>, TxError> {
    limits(context, rules, mode, tx)?;
    meter.add(
        gas::TX_BYTE
            .saturating_mul(tx.size as u64)
            .saturating_add(gas::ANTE),
    );
    if mode == Mode::Simulate && tx.raw.signatures.iter().all(Vec::is_empty) {
        // A simulated transaction lacks its signatures: 64 bytes and their framing each.
        meter.add(
            gas::TX_BYTE
                .saturating_mul(64)
                .saturating_mul(tx.signers.len() as u64),
        );
    }
    out_of_gas(mode, tx, meter, "txSize")?;
    let mut events = pay_fee(rules, mode, state, tx, meter)?;
    set_pubkeys(mode, state, tx)?;
    meter.add(gas::TX_SIGNATURE.saturating_mul(tx.signers.len() as u64));
    out_of_gas(mode, tx, meter, "ante verify: secp256k1")?;
    verify(context, mode, state, tx)?;
    for signer in &tx.signers {
        if let Some(mut account) = Account::load(state, signer) {
            account.sequence = account.sequence.saturating_add(1);
            account.save(state, signer);
        }
    }
    events.extend(signature_events(tx));
    Ok(events)
}

/// Fails once the estimate exceeds the transaction's gas limit.
pub(super) fn out_of_gas(mode: Mode, tx: &DecodedTx, meter: &Meter, location: &str) -> Result<(), TxError> {
    let (wanted, used) = (tx.fee.gas_limit, meter.used());
    if mode != Mode::Simulate && used > wanted {
        return Err(TxError::out_of_gas(format!(
            "out of gas in location: {location}; gasWanted: {wanted}, gasUsed: {used}"
        )));
    }
    Ok(())
}

fn limits(context: &BlockContext<'_>, rules: &Rules, mode: Mode, tx: &DecodedTx) -> Result<(), TxError> {
    if let Some(max) = rules.max_block_gas.filter(|max| tx.fee.gas_limit > *max) {
        return Err(TxError::invalid_gas_limit(format!(
            "tx gas limit {} exceeds block max gas {max}",
            tx.fee.gas_limit
        )));
    }
    let timeout = tx.body.timeout_height;
    if timeout > 0 && context.height > timeout {
        return Err(TxError::timeout_height(format!(
            "block height: {}, timeout height: {timeout}",
            context.height
        )));
    }
    let memo = tx.body.memo.len();
    if memo > rules.max_memo {
        return Err(TxError::memo_too_large(format!(
            "maximum number of characters is {} but received {memo} characters",
            rules.max_memo
        )));
    }
    if tx.signers.len() > rules.max_signatures {
        return Err(TxError::too_many_signatures(format!(
            "signatures: {}, limit: {}",
            tx.signers.len(),
            rules.max_signatures
        )));
    }
    if mode != Mode::Simulate && tx.fee.gas_limit == 0 {
        return Err(TxError::invalid_gas_limit("must provide positive gas"));
    }
    Ok(())
}

fn pay_fee(
    rules: &Rules,
    mode: Mode,
    state: &mut Layer<'_>,
    tx: &DecodedTx,
    meter: &Meter,
) -> Result<Vec<Event>, TxError> {
    if matches!(mode, Mode::Check | Mode::Recheck)
        && let Some(required) = rules.min_gas_price.required(tx.fee.gas_limit)
        && !required
            .iter()
            .any(|(denom, amount)| tx.fee_coins.amount_of(denom) >= amount)
    {
        return Err(TxError::insufficient_fee(format!(
            "insufficient fees; got: {} required: {required}",
            tx.fee_coins
        )));
    }
    let payer = address::text(&tx.fee_payer);
    if Account::load(state, &tx.fee_payer).is_none() {
        return Err(TxError::unknown_address(format!(
            "fee payer address: {payer} does not exist"
        )));
    }
    let mut events = Vec::new();
    if !tx.fee_coins.is_empty() {
        meter.add(gas::FEE);
        let collector = address::fee_collector();
        transfer(state, &tx.fee_payer, &collector, &tx.fee_coins, None)
            .map_err(|error| TxError::insufficient_funds(error.log))?;
        events.extend(event::transfer(&tx.fee_payer, &collector, &tx.fee_coins, true));
    }
    events.push(
        Event::new("tx")
            .with("fee", tx.fee_coins.to_string())
            .with("fee_payer", payer),
    );
    Ok(events)
}

/// Keeps the key of an account that signs for the first time, if it is that account's key.
fn set_pubkeys(mode: Mode, state: &mut Layer<'_>, tx: &DecodedTx) -> Result<(), TxError> {
    for (index, (signer, info)) in tx.signers.iter().zip(&tx.auth.signer_infos).enumerate() {
        let Some(any) = &info.public_key else { continue };
        let key = secp256k1_key(any)?;
        if address_of(&key)? != *signer && mode != Mode::Simulate {
            return Err(TxError::invalid_pubkey(format!(
                "pubKey does not match signer address {} with signer index: {index}",
                address::text(signer)
            )));
        }
        let mut account = load(state, signer)?;
        if account.pubkey.is_none() {
            account.pubkey = Some(key);
            account.save(state, signer);
        }
    }
    Ok(())
}

fn verify(context: &BlockContext<'_>, mode: Mode, state: &Layer<'_>, tx: &DecodedTx) -> Result<(), TxError> {
    for ((signer, info), signature) in tx
        .signers
        .iter()
        .zip(&tx.auth.signer_infos)
        .zip(&tx.raw.signatures)
    {
        let account = load(state, signer)?;
        let Some(key) = account
            .pubkey
            .or_else(|| (mode == Mode::Simulate).then_some([2; 33]))
        else {
            return Err(TxError::invalid_pubkey("pubkey on account is not set"));
        };
        if info.sequence != account.sequence {
            return Err(TxError::wrong_sequence(format!(
                "account sequence mismatch, expected {}, got {}",
                account.sequence, info.sequence
            )));
        }
        if matches!(mode, Mode::Simulate | Mode::Recheck) {
            continue;
        }
        direct_mode(info)?;
        let document = SignDoc {
            body_bytes: tx.raw.body_bytes.clone(),
            auth_info_bytes: tx.raw.auth_info_bytes.clone(),
            chain_id: context.chain_id.to_string(),
            account_number: account.number,
        };
        if !signed(&document.encode_to_vec(), signature, &key) {
            return Err(TxError::unauthorized(format!(
                "signature verification failed; please verify account number ({}) and chain-id ({}): (unable to verify single signer signature)",
                account.number, context.chain_id
            )));
        }
    }
    Ok(())
}

fn signed(document: &[u8], signature: &[u8], key: &[u8; 33]) -> bool {
    let (Ok(key), Ok(signature)) = (
        VerifyingKey::from_sec1_bytes(key),
        Signature::from_slice(signature),
    ) else {
        return false;
    };
    key.verify(document, &signature).is_ok()
}

/// Only SIGN_MODE_DIRECT signs the bytes that are checked here.
fn direct_mode(info: &SignerInfo) -> Result<(), TxError> {
    let mode = info.mode_info.as_ref().and_then(|mode| mode.sum.as_ref());
    match mode {
        Some(mode_info::Sum::Single(single)) => match SignMode::try_from(single.mode) {
            Ok(SignMode::Direct) => Ok(()),
            Ok(other) => Err(TxError::unauthorized(format!(
                "{}: the embedded chain verifies SIGN_MODE_DIRECT only; sign with that mode",
                other.as_str_name()
            ))),
            Err(_) => Err(TxError::unauthorized(format!(
                "unknown sign mode {}",
                single.mode
            ))),
        },
        Some(mode_info::Sum::Multi(_)) => Err(TxError::unauthorized(
            "multisignatures are not supported by the embedded chain",
        )),
        None => Err(TxError::unauthorized("the signer's mode_info is missing")),
    }
}

/// key.
const KEY: Fields = Fields {
    known: &[1],
    nested: &[],
};

fn secp256k1_key(any: &Any) -> Result<[u8; 33], TxError> {
    if any.type_url != "/cosmos.crypto.secp256k1.PubKey" {
        return Err(TxError::invalid_pubkey(format!(
            "{}: the embedded chain knows secp256k1 account keys only",
            any.type_url
        )));
    }
    let key: PubKey = value(any, &KEY)?;
    key.key
        .try_into()
        .map_err(|_| TxError::invalid_pubkey("a secp256k1 key has 33 bytes"))
}

fn address_of(key: &[u8; 33]) -> Result<Vec<u8>, TxError> {
    let key = VerifyingKey::from_sec1_bytes(key).map_err(TxError::invalid_pubkey)?;
    let id = cosmrs::crypto::PublicKey::from(key)
        .account_id(address::PREFIX)
        .map_err(TxError::invalid_pubkey)?;
    Ok(id.to_bytes())
}

fn load(state: &Layer<'_>, signer: &[u8]) -> Result<Account, TxError> {
    Account::load(state, signer)
        .ok_or_else(|| TxError::unknown_address(format!("account {} does not exist", address::text(signer))))
}

fn signature_events(tx: &DecodedTx) -> Vec<Event> {
    let mut events = Vec::new();
    for ((signer, info), signature) in tx
        .signers
        .iter()
        .zip(&tx.auth.signer_infos)
        .zip(&tx.raw.signatures)
    {
        let sequence = format!("{}/{}", address::text(signer), info.sequence);
        events.push(Event::new("tx").with("acc_seq", sequence));
        events.push(Event::new("tx").with("signature", STANDARD.encode(signature)));
    }
    events
}
