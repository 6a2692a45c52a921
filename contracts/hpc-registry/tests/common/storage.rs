//! A store that counts gas as a Cosmos chain does: flat costs and bytes, with the contract's key prefix of 33 bytes.

use std::cell::Cell;
use std::collections::BTreeMap;

use cosmwasm_std::{Order, Record, Storage};

#[derive(Debug, Default, Clone)]
pub struct MeteredStorage {
    pub map: BTreeMap<Vec<u8>, Vec<u8>>,
    gas: Cell<u64>,
}

impl MeteredStorage {
    fn charge(&self, flat: u64, per_byte: u64, bytes: usize) {
        self.gas
            .set(self.gas.get() + flat + per_byte * (33 + bytes as u64));
    }

    /// Gas since the last call.
    pub fn take_gas(&self) -> u64 {
        self.gas.replace(0)
    }
}

impl Storage for MeteredStorage {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = self.map.get(key).cloned();
        self.charge(1_000, 3, key.len() + value.as_ref().map_or(0, Vec::len));
        value
    }

    fn range<'a>(
        &'a self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        order: Order,
    ) -> Box<dyn Iterator<Item = Record> + 'a> {
        let start = start.unwrap_or_default().to_vec();
        let end = end.map(<[u8]>::to_vec);
        let inside = self
            .map
            .range(start..)
            .take_while(move |(k, _)| end.as_ref().is_none_or(|end| *k < end));
        // The chain's iterator charges for the value it stands on, when it is made and again whenever it moves on:
        // the first value is paid twice.
        let mut first = true;
        let charged = move |(k, v): (&Vec<u8>, &Vec<u8>)| {
            if std::mem::take(&mut first) {
                self.charge(30, 3, k.len() + v.len());
            }
            self.charge(30, 3, k.len() + v.len());
            (k.clone(), v.clone())
        };
        match order {
            Order::Ascending => Box::new(inside.map(charged)),
            Order::Descending => {
                let all: Vec<_> = inside.collect();
                Box::new(all.into_iter().rev().map(charged))
            }
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        assert!(!value.is_empty(), "the chain refuses empty values");
        assert!(
            value.len() <= 128 * 1024,
            "the chain refuses values above 128 KiB"
        );
        self.charge(2_000, 30, key.len() + value.len());
        self.map.insert(key.to_vec(), value.to_vec());
    }

    fn remove(&mut self, key: &[u8]) {
        self.gas.set(self.gas.get() + 1_000);
        self.map.remove(key);
    }
}
