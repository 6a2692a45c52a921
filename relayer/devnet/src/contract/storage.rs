//! The contract's view of its storage: a prefix of the chain's state, with gas counted.

use cosmwasm_std::{Order, Record, Storage};

use crate::gas::{Meter, store};
use crate::kv::{Kv, Layer, prefix_end};

/// One contract's storage over a layer that takes its writes.
pub(super) struct ContractStorage<'l, 'b> {
    pub(super) layer: &'l mut Layer<'b>,
    pub(super) prefix: Vec<u8>,
    pub(super) meter: Meter,
}

impl ContractStorage<'_, '_> {
    fn full(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_slice(), key].concat()
    }
}

impl Storage for ContractStorage<'_, '_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = self.layer.get(&self.full(key));
        self.meter
            .add(store::read(key.len(), value.as_ref().map_or(0, Vec::len)));
        value
    }

    fn range<'a>(
        &'a self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        order: Order,
    ) -> Box<dyn Iterator<Item = Record> + 'a> {
        let first = self.full(start.unwrap_or_default());
        let last = end.map_or_else(|| prefix_end(&self.prefix), |end| Some(self.full(end)));
        let entries = self
            .layer
            .range(&first, last.as_deref(), order == Order::Descending);
        let skip = self.prefix.len();
        Box::new(entries.map(move |(key, value)| {
            let key = key.get(skip..).unwrap_or_default().to_vec();
            self.meter.add(store::step(key.len(), value.len()));
            (key, value)
        }))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.meter.add(store::write(key.len(), value.len()));
        let key = self.full(key);
        self.layer.set(&key, value);
    }

    fn remove(&mut self, key: &[u8]) {
        self.meter.add(store::DELETE);
        let key = self.full(key);
        self.layer.remove(&key);
    }
}
