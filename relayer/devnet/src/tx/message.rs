//! The messages that this chain executes.

use cosmrs::proto::Any;
use cosmrs::proto::cosmos::bank::v1beta1::MsgSend;
use cosmrs::proto::cosmwasm::wasm::v1::{
    MsgClearAdmin, MsgExecuteContract, MsgInstantiateContract, MsgMigrateContract, MsgUpdateAdmin,
};

use super::TxError;
use super::proto::{COIN, Fields, value};
use crate::address::{self, Address};
use crate::coin::Coins;

/// A decoded message.
#[derive(Debug)]
pub(crate) enum Msg {
    Send(MsgSend),
    Execute(MsgExecuteContract),
    Instantiate(MsgInstantiateContract),
    Migrate(MsgMigrateContract),
    UpdateAdmin(MsgUpdateAdmin),
    ClearAdmin(MsgClearAdmin),
}

const SEND: &str = "/cosmos.bank.v1beta1.MsgSend";
const EXECUTE: &str = "/cosmwasm.wasm.v1.MsgExecuteContract";
const INSTANTIATE: &str = "/cosmwasm.wasm.v1.MsgInstantiateContract";
const MIGRATE: &str = "/cosmwasm.wasm.v1.MsgMigrateContract";
const UPDATE_ADMIN: &str = "/cosmwasm.wasm.v1.MsgUpdateAdmin";
const CLEAR_ADMIN: &str = "/cosmwasm.wasm.v1.MsgClearAdmin";

/// sender, contract, msg, funds (4 was removed); the numbers are those of `cosmwasm/wasm/v1/tx.proto`.
const EXECUTE_FIELDS: Fields = Fields {
    known: &[1, 2, 3, 5],
    nested: &[(5, &COIN)],
};
/// from_address, to_address, amount.
const SEND_FIELDS: Fields = Fields {
    known: &[1, 2, 3],
    nested: &[(3, &COIN)],
};
/// sender, admin, code_id, label, msg, funds.
const INSTANTIATE_FIELDS: Fields = Fields {
    known: &[1, 2, 3, 4, 5, 6],
    nested: &[(6, &COIN)],
};
/// sender, contract, code_id, msg.
const MIGRATE_FIELDS: Fields = flat(&[1, 2, 3, 4]);
/// sender, new_admin, contract.
const UPDATE_ADMIN_FIELDS: Fields = flat(&[1, 2, 3]);
/// sender, contract.
const CLEAR_ADMIN_FIELDS: Fields = flat(&[1, 3]);

const fn flat(known: &'static [u32]) -> Fields {
    Fields { known, nested: &[] }
}

/// wasmd's limit on a contract's label.
const MAX_LABEL: usize = 128;

impl Msg {
    pub(super) fn decode(any: &Any) -> Result<Self, TxError> {
        Ok(match any.type_url.as_str() {
            SEND => Self::Send(value(any, &SEND_FIELDS)?),
            EXECUTE => Self::Execute(value(any, &EXECUTE_FIELDS)?),
            INSTANTIATE => Self::Instantiate(value(any, &INSTANTIATE_FIELDS)?),
            MIGRATE => Self::Migrate(value(any, &MIGRATE_FIELDS)?),
            UPDATE_ADMIN => Self::UpdateAdmin(value(any, &UPDATE_ADMIN_FIELDS)?),
            CLEAR_ADMIN => Self::ClearAdmin(value(any, &CLEAR_ADMIN_FIELDS)?),
            "/cosmwasm.wasm.v1.MsgStoreCode" => {
                return Err(TxError::not_supported(
                    "the embedded chain runs no wasm: the registry is linked natively as code id 1, instantiate that",
                ));
            }
            "/cosmwasm.wasm.v1.MsgInstantiateContract2" => {
                return Err(TxError::not_supported(
                    "the embedded chain has no predictable addresses: use MsgInstantiateContract",
                ));
            }
            other => return Err(TxError::tx_decode(format!("unable to resolve type URL {other}"))),
        })
    }

    /// The type's URL, which is also the `action` of its event.
    pub(super) fn type_url(&self) -> &'static str {
        match self {
            Self::Send(_) => SEND,
            Self::Execute(_) => EXECUTE,
            Self::Instantiate(_) => INSTANTIATE,
            Self::Migrate(_) => MIGRATE,
            Self::UpdateAdmin(_) => UPDATE_ADMIN,
            Self::ClearAdmin(_) => CLEAR_ADMIN,
        }
    }

    /// The module that handles it.
    pub(super) fn module(&self) -> &'static str {
        if matches!(self, Self::Send(_)) {
            "bank"
        } else {
            "wasm"
        }
    }

    /// Who must sign it.
    pub(super) fn sender(&self) -> Result<Address, TxError> {
        let text = match self {
            Self::Send(msg) => &msg.from_address,
            Self::Execute(msg) => &msg.sender,
            Self::Instantiate(msg) => &msg.sender,
            Self::Migrate(msg) => &msg.sender,
            Self::UpdateAdmin(msg) => &msg.sender,
            Self::ClearAdmin(msg) => &msg.sender,
        };
        address::parse(text).map_err(|error| error.context("sender"))
    }

    /// What can be checked without state.
    pub(super) fn validate(&self) -> Result<(), TxError> {
        match self {
            Self::Send(msg) => {
                address::parse(&msg.to_address)?;
                if Coins::from_proto(&msg.amount)?.is_empty() {
                    return Err(TxError::invalid_coins("no coins to send"));
                }
            }
            Self::Execute(msg) => {
                address::parse(&msg.contract).map_err(|error| error.context("contract"))?;
                Coins::from_proto(&msg.funds).map_err(|error| error.context("funds"))?;
                json(&msg.msg)?;
            }
            Self::Instantiate(msg) => {
                if msg.code_id == 0 {
                    return Err(TxError::invalid_request("code id is required"));
                }
                if msg.label.is_empty() {
                    return Err(TxError::empty("label is required"));
                }
                if msg.label.len() > MAX_LABEL {
                    return Err(TxError::exceeds_limit(format!(
                        "label: cannot be longer than {MAX_LABEL} characters"
                    )));
                }
                if !msg.admin.is_empty() {
                    address::parse(&msg.admin).map_err(|error| error.context("admin"))?;
                }
                Coins::from_proto(&msg.funds).map_err(|error| error.context("funds"))?;
                json(&msg.msg)?;
            }
            Self::Migrate(msg) => {
                address::parse(&msg.contract).map_err(|error| error.context("contract"))?;
                if msg.code_id == 0 {
                    return Err(TxError::invalid_request("code id is required"));
                }
                json(&msg.msg)?;
            }
            Self::UpdateAdmin(msg) => {
                address::parse(&msg.contract).map_err(|error| error.context("contract"))?;
                address::parse(&msg.new_admin).map_err(|error| error.context("new admin"))?;
            }
            Self::ClearAdmin(msg) => {
                address::parse(&msg.contract).map_err(|error| error.context("contract"))?;
            }
        }
        Ok(())
    }
}

fn json(msg: &[u8]) -> Result<(), TxError> {
    serde_json::from_slice::<serde::de::IgnoredAny>(msg)
        .map(drop)
        .map_err(|error| TxError::invalid(format!("payload msg: {error}")))
}
