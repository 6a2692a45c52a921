//! Account and contract addresses, derived as the Cosmos SDK and wasmd derive them.

use cosmrs::AccountId;
use sha2::{Digest, Sha256};

use crate::tx::TxError;

/// The human-readable part of every address on this chain.
pub const PREFIX: &str = "wasm";

/// Raw bytes of an address: 20 for accounts, 32 for contracts.
pub(crate) type Address = Vec<u8>;

/// Parses a bech32 address with this chain's prefix.
pub(crate) fn parse(text: &str) -> Result<Address, TxError> {
    decode(text).map_err(TxError::invalid_address)
}

/// As [`parse`], with the bare reason.
pub(crate) fn decode(text: &str) -> Result<Address, String> {
    if text.is_empty() {
        return Err("empty address string is not allowed".to_string());
    }
    let id: AccountId = text
        .parse()
        .map_err(|error| format!("decoding bech32 failed: {error}"))?;
    if id.prefix() != PREFIX {
        return Err(format!(
            "invalid Bech32 prefix; expected {PREFIX}, got {}",
            id.prefix()
        ));
    }
    Ok(id.to_bytes())
}

/// The bech32 text of an address; lower-case hex for a length that bech32 addresses cannot have.
pub(crate) fn text(address: &[u8]) -> String {
    AccountId::new(PREFIX, address).map_or_else(|_| hex::encode(address), |id| id.to_string())
}

/// The account of a module of the chain.
pub(crate) fn module(name: &str) -> Address {
    let mut address = Sha256::digest(name).to_vec();
    address.truncate(20);
    address
}

/// The account that fees are paid to.
pub(crate) fn fee_collector() -> Address {
    module("fee_collector")
}

/// The address of the `instance`-th contract of the chain (counted from 1), of code `code_id`.
///
/// wasmd's classic rule, so that both chains give the same addresses:
/// `SHA-256(SHA-256("module") ‖ "wasm" ‖ 0 ‖ code id u64 ‖ instance u64)`.
pub(crate) fn contract(code_id: u64, instance: u64) -> Address {
    Sha256::new()
        .chain_update(Sha256::digest(b"module"))
        .chain_update(b"wasm\0")
        .chain_update(code_id.to_be_bytes())
        .chain_update(instance.to_be_bytes())
        .finalize()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_contract_has_the_address_that_it_has_on_every_fresh_wasmd() {
        assert_eq!(
            text(&contract(1, 1)),
            "wasm14hj2tavq8fpesdwxxcu44rty3hh90vhujrvcmstl4zr3txmfvw9s0phg4d"
        );
    }

    #[test]
    fn the_fee_collector_is_the_sdks_module_account() {
        assert_eq!(
            text(&fee_collector()),
            "wasm17xpfvakm2amg962yls6f84z3kell8c5l69j4zk"
        );
    }

    #[test]
    fn an_address_of_another_chain_is_refused() {
        let error = parse("cosmos17xpfvakm2amg962yls6f84z3kell8c5lserqta").unwrap_err();
        assert_eq!(error.code, 7);
        assert!(error.log.contains("expected wasm, got cosmos"));
    }
}
