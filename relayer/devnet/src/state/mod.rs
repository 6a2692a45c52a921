//! What the chain's modules keep in the application state, and under which keys.
//!
//! | key | value |
//! |---|---|
//! | `A` ‖ address | account: number u64 ‖ sequence u64 ‖ public key (0 or 33 bytes) |
//! | `B` ‖ address length u8 ‖ address ‖ denomination | balance u128 |
//! | `C` ‖ contract address (32) | `cosmwasm.wasm.v1.ContractInfo` |
//! | `N` ‖ counter name | last value given out u64 |
//! | `S` ‖ contract address (32) ‖ key | the contract's own storage |

mod account;
mod bank;
mod contract;

pub use account::Numbering;
pub(crate) use account::{Account, NumberSource};
pub(crate) use contract::{contract_prefix, load_contract, save_contract};

pub(crate) use bank::{balance, balances, credit, transfer};

use crate::kv::{Kv, Layer};

/// Adds one to a named counter and returns the new value (the first is 1).
pub(crate) fn next_id(state: &mut Layer<'_>, name: &str) -> u64 {
    let key = [b"N", name.as_bytes()].concat();
    let last = state
        .get(&key)
        .and_then(|v| v.try_into().ok())
        .map_or(0, u64::from_be_bytes);
    let next = last.saturating_add(1);
    state.set(&key, &next.to_be_bytes());
    next
}
