//! Contracts.

use cosmrs::proto::cosmwasm::wasm::v1::{
    AccessConfig, AccessType, CodeInfoResponse, ContractInfo, Model, QueryAllContractStateRequest,
    QueryAllContractStateResponse, QueryCodesRequest, QueryCodesResponse, QueryContractInfoRequest,
    QueryContractInfoResponse, QueryRawContractStateRequest, QueryRawContractStateResponse,
    QuerySmartContractStateRequest, QuerySmartContractStateResponse,
};
use cosmrs::proto::traits::Message;
use sha2::{Digest, Sha256};

use super::{Status, grpc, page};
use crate::address::{self, Address};
use crate::chain::{Node, Snapshot};
use crate::contract::{Failure, Host};
use crate::gas::Meter;
use crate::kv::{Kv, Layer, prefix_end};
use crate::state::{contract_prefix, load_contract};
use crate::tx::TxError;

fn contract(snapshot: &Snapshot, text: &str) -> Result<(Address, ContractInfo), TxError> {
    let address = super::address(text)?;
    let info = load_contract(&snapshot.state, &address)
        .ok_or_else(|| TxError::unknown_request(TxError::no_such_contract(format!("address {text}")).log))?;
    Ok((address, info))
}

pub(super) fn smart(
    node: &Node,
    snapshot: &Snapshot,
    request: &QuerySmartContractStateRequest,
) -> Result<Vec<u8>, TxError> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(&request.query_data).is_err() {
        return Err(grpc(Status::InvalidArgument, "invalid query data"));
    }
    let (address, info) = contract(snapshot, &request.address)?;
    let context = node.params.context(
        snapshot.tip.height,
        snapshot.tip.time_nanos,
        snapshot.tip.app_hash(),
    );
    let code = context
        .code(info.code_id)
        .map_err(|error| TxError::unknown_request(error.log))?;
    let host = Host {
        chain_id: &node.params.chain_id,
        height: snapshot.tip.height,
        time_nanos: snapshot.tip.time_nanos,
        transaction: None,
        meter: Meter::default(),
    };
    let mut layer = Layer::over(&snapshot.state);
    let data = host
        .query(code, &mut layer, &address, &request.query_data)
        .map_err(|failure| {
            let error = match failure {
                Failure::Refused(text) => TxError::query_failed(text),
                Failure::Panicked(text) => TxError::vm(text),
            };
            TxError::unknown_request(error.log)
        })?;
    Ok(QuerySmartContractStateResponse { data: data.into() }.encode_to_vec())
}

pub(super) fn raw(snapshot: &Snapshot, request: &QueryRawContractStateRequest) -> Result<Vec<u8>, TxError> {
    let (address, _) = contract(snapshot, &request.address)?;
    let key = [contract_prefix(&address).as_slice(), &request.query_data].concat();
    let data = snapshot.state.get(&key).unwrap_or_default();
    Ok(QueryRawContractStateResponse { data }.encode_to_vec())
}

pub(super) fn all(snapshot: &Snapshot, request: &QueryAllContractStateRequest) -> Result<Vec<u8>, TxError> {
    let (address, _) = contract(snapshot, &request.address)?;
    let prefix = contract_prefix(&address);
    let entries = snapshot
        .state
        .range(&prefix, prefix_end(&prefix).as_deref(), false)
        .map(|(key, value)| {
            let key = key.get(prefix.len()..).unwrap_or_default().to_vec();
            (key.clone(), Model { key, value })
        });
    let (models, pagination) = page::take(entries, request.pagination.as_ref())?;
    Ok(QueryAllContractStateResponse {
        models,
        pagination: Some(pagination),
    }
    .encode_to_vec())
}

pub(super) fn info(snapshot: &Snapshot, request: &QueryContractInfoRequest) -> Result<Vec<u8>, TxError> {
    let (_, info) = contract(snapshot, &request.address)?;
    let response = QueryContractInfoResponse {
        address: request.address.clone(),
        contract_info: Some(info),
    };
    Ok(response.encode_to_vec())
}

pub(super) fn codes(node: &Node, request: &QueryCodesRequest) -> Result<Vec<u8>, TxError> {
    let entries = (1u64..).zip(&node.params.codes).map(|(code_id, code)| {
        let info = CodeInfoResponse {
            code_id,
            // CosmJS wants one; nobody uploaded a natively linked code but the chain itself.
            creator: address::text(&address::module("wasm")),
            data_hash: Sha256::digest(code.name()).to_vec(),
            instantiate_permission: Some(AccessConfig {
                permission: AccessType::Everybody.into(),
                addresses: Vec::new(),
            }),
        };
        (code_id.to_be_bytes().to_vec(), info)
    });
    let (code_infos, pagination) = page::take(entries, request.pagination.as_ref())?;
    Ok(QueryCodesResponse {
        code_infos,
        pagination: Some(pagination),
    }
    .encode_to_vec())
}
