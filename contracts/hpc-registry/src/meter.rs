//! What a query has read so far, by the chain's prices: a list ends and names its cursor before the node's limit for
//! smart queries (3,000,000 gas in wasmd) is reached.

use std::cell::Cell;

use cosmwasm_std::{Order, Record, Storage};

/// Reads for one answer; the rest up to the limit is for the wasm's own work and for what one more node needs.
const MAX_READ: u64 = 2_000_000;

/// A store that counts what is read of it: flat costs and bytes, with the contract's prefix of 33 bytes.
pub(crate) struct Meter<'a> {
    storage: &'a dyn Storage,
    gas: Cell<u64>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(storage: &'a dyn Storage) -> Self {
        Self {
            storage,
            gas: Cell::new(0),
        }
    }

    /// Whether the answer must end here.
    pub(crate) fn is_spent(&self) -> bool {
        self.gas.get() >= MAX_READ
    }

    fn charge(&self, flat: u64, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let gas = bytes.saturating_add(33).saturating_mul(3).saturating_add(flat);
        self.gas.set(self.gas.get().saturating_add(gas));
    }
}

impl Storage for Meter<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = self.storage.get(key);
        self.charge(1_000, key.len() + value.as_ref().map_or(0, Vec::len));
        value
    }

    fn range<'a>(
        &'a self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        order: Order,
    ) -> Box<dyn Iterator<Item = Record> + 'a> {
        let entries = self.storage.range(start, end, order);
        Box::new(entries.inspect(|(key, value)| self.charge(30, key.len() + value.len())))
    }

    /// A query has nothing to write.
    fn set(&mut self, _key: &[u8], _value: &[u8]) {}

    fn remove(&mut self, _key: &[u8]) {}
}
