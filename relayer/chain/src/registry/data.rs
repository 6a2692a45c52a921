//! What executions leave behind: the contract's events and the data of each message.

use cosmrs::proto::cosmos::base::abci::v1beta1::TxMsgData;
use cosmrs::proto::cosmwasm::wasm::v1::{
    MsgExecuteContractResponse, MsgInstantiateContractResponse, MsgStoreCodeResponse,
};
use cosmrs::proto::traits::Message;
use hpc_schema::registry::{Event, EventError};

use crate::rpc::ExecResult;

/// Data of a result that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the result's data cannot be read: {0}")]
pub struct DataError(String);

impl DataError {
    pub(crate) fn new(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// The registry's own events of one transaction, in order; those of other contracts are left out.
///
/// # Errors
/// [`EventError::Attribute`]: an event of ours that this version cannot read.
pub fn events(result: &ExecResult, contract: &str) -> Result<Vec<Event>, EventError> {
    each_event(result, contract).map(|(_, event)| event).collect()
}

/// The same, each with its number among all events of the transaction, and each readable or not by itself.
pub(super) fn each_event<'a>(
    result: &'a ExecResult,
    contract: &'a str,
) -> impl Iterator<Item = (u32, Result<Event, EventError>)> + 'a {
    (0u32..).zip(&result.events).filter_map(move |(number, event)| {
        if !event.ty.starts_with("wasm-") || event.value("_contract_address") != Some(contract) {
            return None;
        }
        match Event::parse(&event.ty, event.pairs()) {
            Err(EventError::UnknownType(_)) => None,
            read => Some((number, read)),
        }
    })
}

/// The data of message number `index`, as the contract returned it; `None` if it returned none. For a `MsgStoreCode` it
/// is the code id as text, for a `MsgInstantiateContract` the address.
///
/// # Errors
/// [`DataError`].
pub fn response_data(result: &ExecResult, index: usize) -> Result<Option<Vec<u8>>, DataError> {
    let data = TxMsgData::decode(result.data.as_slice()).map_err(DataError::new)?;
    let Some(any) = data.msg_responses.get(index) else {
        return Ok(None);
    };
    let value = any.value.as_slice();
    let bytes = match any.type_url.as_str() {
        "/cosmwasm.wasm.v1.MsgExecuteContractResponse" => {
            MsgExecuteContractResponse::decode(value)
                .map_err(DataError::new)?
                .data
        }
        "/cosmwasm.wasm.v1.MsgInstantiateContractResponse" => MsgInstantiateContractResponse::decode(value)
            .map_err(DataError::new)?
            .address
            .into_bytes(),
        "/cosmwasm.wasm.v1.MsgStoreCodeResponse" => MsgStoreCodeResponse::decode(value)
            .map_err(DataError::new)?
            .code_id
            .to_string()
            .into_bytes(),
        other => return Err(DataError::new(format!("message {index} answered {other}"))),
    };
    Ok((!bytes.is_empty()).then_some(bytes))
}
