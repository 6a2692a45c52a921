//! Balances and their movement.

use super::account::{Account, NumberSource};
use crate::coin::Coins;
use crate::kv::{Kv, Layer, prefix_end};
use crate::tx::TxError;

fn prefix(address: &[u8]) -> Vec<u8> {
    let length = u8::try_from(address.len()).unwrap_or(u8::MAX);
    [b"B", [length].as_slice(), address].concat()
}

fn key(address: &[u8], denom: &str) -> Vec<u8> {
    [prefix(address).as_slice(), denom.as_bytes()].concat()
}

/// What `address` holds of `denom`.
pub(crate) fn balance(state: &dyn Kv, address: &[u8], denom: &str) -> u128 {
    state
        .get(&key(address, denom))
        .and_then(|v| v.try_into().ok())
        .map_or(0, u128::from_be_bytes)
}

/// Everything that `address` holds, sorted by denomination.
pub(crate) fn balances(state: &dyn Kv, address: &[u8]) -> Vec<(String, u128)> {
    let prefix = prefix(address);
    let entries = state.range(&prefix, prefix_end(&prefix).as_deref(), false);
    entries
        .filter_map(|(key, value)| {
            let denom = String::from_utf8(key.get(prefix.len()..)?.to_vec()).ok()?;
            Some((denom, u128::from_be_bytes(value.try_into().ok()?)))
        })
        .collect()
}

/// Adds coins without taking them from anybody: genesis only.
pub(crate) fn credit(state: &mut Layer<'_>, address: &[u8], coins: &Coins) -> Result<(), TxError> {
    for (denom, amount) in coins.iter() {
        let sum = balance(state, address, denom)
            .checked_add(amount)
            .ok_or_else(|| TxError::invalid_coins(format!("the balance of {denom} would overflow")))?;
        state.set(&key(address, denom), &sum.to_be_bytes());
    }
    Ok(())
}

/// Moves coins; makes the receiver's account if `create` says how to number it.
pub(crate) fn transfer(
    state: &mut Layer<'_>,
    from: &[u8],
    to: &[u8],
    coins: &Coins,
    create: Option<NumberSource<'_>>,
) -> Result<(), TxError> {
    for (denom, amount) in coins.iter() {
        let held = balance(state, from, denom);
        let Some(left) = held.checked_sub(amount) else {
            return Err(TxError::insufficient_funds(format!(
                "spendable balance {held}{denom} is smaller than {amount}{denom}"
            )));
        };
        if left == 0 {
            state.remove(&key(from, denom));
        } else {
            state.set(&key(from, denom), &left.to_be_bytes());
        }
    }
    credit(state, to, coins)?;
    if let Some(source) = create {
        Account::ensure(state, to, source);
    }
    Ok(())
}
