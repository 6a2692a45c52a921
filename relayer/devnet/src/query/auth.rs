//! Accounts.

use cosmrs::proto::cosmos::auth::v1beta1::{
    Params, QueryAccountRequest, QueryAccountResponse, QueryParamsResponse,
};
use cosmrs::proto::traits::Message;

use super::{Status, grpc};
use crate::chain::{Node, Snapshot};
use crate::gas;
use crate::state::Account;
use crate::tx::TxError;

pub(super) fn account(snapshot: &Snapshot, request: &QueryAccountRequest) -> Result<Vec<u8>, TxError> {
    if request.address.is_empty() {
        return Err(grpc(Status::InvalidArgument, "Address cannot be empty"));
    }
    let address = super::address(&request.address)?;
    let account = Account::load(&snapshot.state, &address)
        .ok_or_else(|| grpc(Status::NotFound, format!("account {} not found", request.address)))?;
    Ok(QueryAccountResponse {
        account: Some(account.to_any(&address)),
    }
    .encode_to_vec())
}

pub(super) fn params(node: &Node) -> Vec<u8> {
    let rules = &node.params.rules;
    let params = Params {
        max_memo_characters: rules.max_memo as u64,
        tx_sig_limit: rules.max_signatures as u64,
        tx_size_cost_per_byte: gas::TX_BYTE,
        sig_verify_cost_ed25519: 590,
        sig_verify_cost_secp256k1: gas::TX_SIGNATURE,
    };
    QueryParamsResponse { params: Some(params) }.encode_to_vec()
}
