//! Balances.

use cosmrs::proto::cosmos::bank::v1beta1::{
    QueryAllBalancesRequest, QueryAllBalancesResponse, QueryBalanceRequest, QueryBalanceResponse,
};
use cosmrs::proto::cosmos::base::v1beta1::Coin;
use cosmrs::proto::traits::Message;

use super::{Status, grpc, page};
use crate::address;
use crate::chain::Snapshot;
use crate::coin::valid_denom;
use crate::state;
use crate::tx::TxError;

fn owner(text: &str) -> Result<Vec<u8>, TxError> {
    address::decode(text).map_err(|error| grpc(Status::InvalidArgument, format!("invalid address: {error}")))
}

fn coin(denom: &str, amount: u128) -> Coin {
    Coin {
        denom: denom.to_string(),
        amount: amount.to_string(),
    }
}

pub(super) fn balance(snapshot: &Snapshot, request: &QueryBalanceRequest) -> Result<Vec<u8>, TxError> {
    if !valid_denom(&request.denom) {
        return Err(grpc(
            Status::InvalidArgument,
            format!("invalid denom: {}", request.denom),
        ));
    }
    let address = owner(&request.address)?;
    let amount = state::balance(&snapshot.state, &address, &request.denom);
    Ok(QueryBalanceResponse {
        balance: Some(coin(&request.denom, amount)),
    }
    .encode_to_vec())
}

pub(super) fn all_balances(
    snapshot: &Snapshot,
    request: &QueryAllBalancesRequest,
) -> Result<Vec<u8>, TxError> {
    let address = owner(&request.address)?;
    let entries = state::balances(&snapshot.state, &address)
        .into_iter()
        .map(|(denom, amount)| (denom.clone().into_bytes(), coin(&denom, amount)));
    let (balances, pagination) = page::take(entries, request.pagination.as_ref())?;
    Ok(QueryAllBalancesResponse {
        balances,
        pagination: Some(pagination),
    }
    .encode_to_vec())
}
