//! `abci_query`: the gRPC queries that clients send through it.

mod auth;
mod bank;
mod consensus;
mod page;
mod simulate;
mod wasm;

use cosmrs::proto::traits::Message;

use crate::address::{self, Address};
use crate::chain::{Node, Snapshot};
use crate::error::Error;
use crate::tx::TxError;

/// Why a query has no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// No module has this path.
    Path(TxError),
    /// The module's answer is an error: a code and text of the SDK.
    Query(TxError),
    /// The chain itself failed.
    Node(Error),
}

impl From<TxError> for Refusal {
    fn from(error: TxError) -> Self {
        Self::Query(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Node(error)
    }
}

type Answer = Result<Vec<u8>, Refusal>;

/// Answers one query at the newest state.
pub(crate) fn answer(node: &Node, snapshot: &Snapshot, path: &str, data: &[u8]) -> Answer {
    let value = match path {
        "/cosmos.auth.v1beta1.Query/Account" => auth::account(snapshot, &parse(data)?),
        "/cosmos.auth.v1beta1.Query/Params" => Ok(auth::params(node)),
        "/cosmos.bank.v1beta1.Query/Balance" => bank::balance(snapshot, &parse(data)?),
        "/cosmos.bank.v1beta1.Query/AllBalances" => bank::all_balances(snapshot, &parse(data)?),
        "/cosmos.tx.v1beta1.Service/Simulate" => simulate::simulate(node, snapshot, &parse(data)?),
        "/cosmwasm.wasm.v1.Query/SmartContractState" => wasm::smart(node, snapshot, &parse(data)?),
        "/cosmwasm.wasm.v1.Query/RawContractState" => wasm::raw(snapshot, &parse(data)?),
        "/cosmwasm.wasm.v1.Query/AllContractState" => wasm::all(snapshot, &parse(data)?),
        "/cosmwasm.wasm.v1.Query/ContractInfo" => wasm::info(snapshot, &parse(data)?),
        "/cosmwasm.wasm.v1.Query/Codes" => wasm::codes(node, &parse(data)?),
        "/cosmos.consensus.v1.Query/Params" => Ok(consensus::params(node)),
        "" => return Err(Refusal::Path(TxError::unknown_request("no query path provided"))),
        _ => return Err(Refusal::Path(TxError::unknown_request("unknown query path"))),
    }?;
    snapshot.sound()?;
    Ok(value)
}

fn parse<M: Message + Default>(data: &[u8]) -> Result<M, TxError> {
    M::decode(data).map_err(TxError::invalid_request)
}

/// An address in a query.
fn address(text: &str) -> Result<Address, TxError> {
    address::decode(text).map_err(TxError::invalid_request)
}

/// The gRPC statuses that the SDK turns into codes of their own.
#[derive(Clone, Copy)]
enum Status {
    NotFound,
    InvalidArgument,
}

/// A gRPC error as `abci_query` reports it.
fn grpc(status: Status, text: impl std::fmt::Display) -> TxError {
    match status {
        Status::NotFound => TxError::key_not_found(format!("rpc error: code = NotFound desc = {text}")),
        Status::InvalidArgument => {
            TxError::invalid_request(format!("rpc error: code = InvalidArgument desc = {text}"))
        }
    }
}
