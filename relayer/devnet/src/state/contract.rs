//! Records of contract instances.

use cosmrs::proto::cosmwasm::wasm::v1::ContractInfo;
use cosmrs::proto::traits::Message;

use crate::kv::{Kv, Layer};

/// The record of the contract at `address`, if there is one.
pub(crate) fn load_contract(state: &dyn Kv, address: &[u8]) -> Option<ContractInfo> {
    ContractInfo::decode(state.get(&key(address))?.as_slice()).ok()
}

pub(crate) fn save_contract(state: &mut Layer<'_>, address: &[u8], info: &ContractInfo) {
    state.set(&key(address), &info.encode_to_vec());
}

/// Under this prefix lies the contract's own storage.
pub(crate) fn contract_prefix(address: &[u8]) -> Vec<u8> {
    [b"S", address].concat()
}

fn key(address: &[u8]) -> Vec<u8> {
    [b"C", address].concat()
}
