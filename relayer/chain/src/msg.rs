//! The chain's messages that are sent here.

pub use cosmrs::Any;
use cosmrs::proto::cosmos::bank::v1beta1::MsgSend;
use cosmrs::proto::cosmwasm::wasm::v1::{
    MsgExecuteContract, MsgInstantiateContract, MsgMigrateContract, MsgStoreCode,
};
use serde::Serialize;

use crate::gas::Coin;
use crate::tx::{any, proto_coins};

/// A contract message that does not serialise: never for the registry's own types.
#[derive(Debug, thiserror::Error)]
#[error("message cannot be written as JSON: {0}")]
pub struct EncodeError(#[from] serde_json::Error);

/// `MsgExecuteContract`.
///
/// # Errors
/// [`EncodeError`].
pub fn execute<M: Serialize>(
    sender: &str,
    contract: &str,
    msg: &M,
    funds: &[Coin],
) -> Result<Any, EncodeError> {
    Ok(any(&MsgExecuteContract {
        sender: sender.to_owned(),
        contract: contract.to_owned(),
        msg: serde_json::to_vec(msg)?,
        funds: proto_coins(funds),
    }))
}

/// `MsgInstantiateContract`; the answer is a `MsgInstantiateContractResponse` with the address.
///
/// # Errors
/// [`EncodeError`].
pub fn instantiate<M: Serialize>(
    sender: &str,
    admin: Option<&str>,
    code_id: u64,
    label: &str,
    msg: &M,
    funds: &[Coin],
) -> Result<Any, EncodeError> {
    Ok(any(&MsgInstantiateContract {
        sender: sender.to_owned(),
        admin: admin.unwrap_or_default().to_owned(),
        code_id,
        label: label.to_owned(),
        msg: serde_json::to_vec(msg)?,
        funds: proto_coins(funds),
    }))
}

/// `MsgStoreCode`; everybody may instantiate it (the chain's default).
#[must_use]
pub fn store_code(sender: &str, wasm: Vec<u8>) -> Any {
    any(&MsgStoreCode {
        sender: sender.to_owned(),
        wasm_byte_code: wasm,
        instantiate_permission: None,
    })
}

/// `MsgMigrateContract`.
///
/// # Errors
/// [`EncodeError`].
pub fn migrate<M: Serialize>(
    sender: &str,
    contract: &str,
    code_id: u64,
    msg: &M,
) -> Result<Any, EncodeError> {
    Ok(any(&MsgMigrateContract {
        sender: sender.to_owned(),
        contract: contract.to_owned(),
        code_id,
        msg: serde_json::to_vec(msg)?,
    }))
}

/// `MsgSend`.
#[must_use]
pub fn send(from: &str, to: &str, coins: &[Coin]) -> Any {
    any(&MsgSend {
        from_address: from.to_owned(),
        to_address: to.to_owned(),
        amount: proto_coins(coins),
    })
}
