//! An **estimate** of gas. Nothing here is metered: contracts run natively, so no instruction is counted.
//!
//! The prices of what this chain does see (transaction bytes, storage reads and writes with their bytes, host
//! calls) are those of the Cosmos SDK 0.53/0.54 and wasmd 0.61/0.70. What it does not see (instructions, the
//! SDK's own bookkeeping) enters as constants, fitted to transactions measured on wasmd 0.70.3; the tests below
//! hold the measurements. The estimate is good for choosing gas limits on this chain and for seeing what a
//! change costs; gas that is published is measured on wasmd.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gas per byte of the signed transaction (SDK parameter `tx_size_cost_per_byte`).
pub(crate) const TX_BYTE: u64 = 10;
/// Gas per secp256k1 signature of the transaction (SDK parameter `sig_verify_cost_secp256k1`).
pub(crate) const TX_SIGNATURE: u64 = 1_000;
/// Fixed part of the ante handler without a fee: parameters and account read, account written.
pub(crate) const ANTE: u64 = 30_000;
/// What deducting a fee adds.
pub(crate) const FEE: u64 = 18_000;
/// Moving coins between two accounts.
pub(crate) const BANK_SEND: u64 = 17_500;
/// Loading an unpinned contract (wasmd's `DefaultInstanceCost`), once a transaction and contract.
pub(crate) const INSTANCE: u64 = 60_000;
/// Loading a contract that this transaction has loaded already (`DefaultInstanceCostDiscount`).
pub(crate) const INSTANCE_AGAIN: u64 = 2_000;
/// Reading the contract's and code's records, setting up the call, empty response and event.
pub(crate) const EXECUTE: u64 = 2_600;
/// What making an instance adds to [`EXECUTE`]: records, indexes, history, account.
pub(crate) const INSTANTIATE: u64 = 36_000;
/// Changing a contract's record (admin, code id).
pub(crate) const CONTRACT_RECORD: u64 = 8_000;
/// Tenths of gas per byte of a contract's message: JSON parsing and encoding in wasm.
const JSON_BYTE_TENTHS: u64 = 6;
/// Gas per attribute of a contract's event, and per custom event.
pub(crate) const EVENT_ATTRIBUTE: u64 = 10;
/// Gas per custom event.
pub(crate) const EVENT: u64 = 20;

/// What handling `bytes` of JSON costs a contract.
pub(crate) fn json(bytes: usize) -> u64 {
    (bytes as u64).saturating_mul(JSON_BYTE_TENTHS) / 10
}

/// A counter of estimated gas. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<AtomicU64>);

impl Meter {
    pub(crate) fn add(&self, gas: u64) {
        self.0.fetch_add(gas, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Storage prices (SDK `KVGasConfig`); a contract's keys carry a prefix of 33 bytes.
pub(crate) mod store {
    const PREFIX: u64 = 33;
    /// Removing a key.
    pub(crate) const DELETE: u64 = 1_000;

    fn bytes(key: usize, value: usize) -> u64 {
        PREFIX.saturating_add(key as u64).saturating_add(value as u64)
    }

    /// Reading a value.
    pub(crate) fn read(key: usize, value: usize) -> u64 {
        bytes(key, value).saturating_mul(3).saturating_add(1_000)
    }

    /// Writing a value.
    pub(crate) fn write(key: usize, value: usize) -> u64 {
        bytes(key, value).saturating_mul(30).saturating_add(2_000)
    }

    /// One step of an iterator.
    pub(crate) fn step(key: usize, value: usize) -> u64 {
        bytes(key, value).saturating_mul(3).saturating_add(30)
    }
}

/// Prices of host functions (cosmwasm-vm's, at 140,000 CosmWasm gas a unit of SDK gas).
pub(crate) mod crypto {
    pub(crate) const ADDRESS: u64 = 10;
    pub(crate) const ED25519_VERIFY: u64 = 250;
    pub(crate) const SECP256K1_VERIFY: u64 = 686;
    pub(crate) const SECP256K1_RECOVER: u64 = 1_386;
    pub(crate) const SECP256R1_VERIFY: u64 = 1_993;
    pub(crate) const SECP256R1_RECOVER: u64 = 4_229;
    pub(crate) const BLS_HASH_G1: u64 = 4_021;
    pub(crate) const BLS_HASH_G2: u64 = 6_221;

    fn linear(base: u64, each: u64, n: usize) -> u64 {
        each.saturating_mul(n as u64).saturating_add(base)
    }

    /// `ed25519_batch_verify` of `n` signatures.
    pub(crate) fn ed25519_batch(n: usize) -> u64 {
        linear(171, 150, n)
    }

    pub(crate) fn bls_aggregate_g1(points: usize) -> u64 {
        linear(486, 86, points)
    }

    pub(crate) fn bls_aggregate_g2(points: usize) -> u64 {
        linear(739, 175, points)
    }

    pub(crate) fn bls_pairing(pairs: usize) -> u64 {
        linear(16_250, 1_164, pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(estimate: u64, measured: u64) -> bool {
        estimate.abs_diff(measured) * 50 < measured
    }

    #[test]
    fn the_constants_reproduce_transactions_measured_on_wasmd_within_two_percent() {
        let ante = |bytes: u64| bytes * TX_BYTE + TX_SIGNATURE + ANTE;
        for (what, estimate, measured) in [
            ("an admin is changed", ante(355) + CONTRACT_RECORD, 42_512),
            ("a message fails before it reads much", ante(308), 34_012),
            ("coins are sent to a new account", ante(317) + BANK_SEND, 51_719),
            ("a contract that does not exist", ante(323), 33_658),
        ] {
            assert!(close(estimate, measured), "{what}: {estimate} against {measured}");
        }
    }
}
