//! Transactions that wait for a block, and the state that CheckTx sees.

use std::collections::{HashSet, VecDeque};

use super::block::ParamsView;
use super::snapshot::Tip;
use crate::config::Limits;
use crate::kv::{Kv, Layer, Writes};
use crate::tx::{self, DecodedTx, Mode, TxError};

/// Why the mempool did not even ask CheckTx, as CometBFT words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("tx already exists in cache")]
    Cached,
    #[error("Tx too large. Max size is {max}, but got {size}")]
    TooLarge { size: usize, max: usize },
    #[error(
        "mempool is full: number of txs {txs} (max: {max_txs}), total txs bytes {bytes} (max: {max_bytes})"
    )]
    Full {
        txs: usize,
        max_txs: usize,
        bytes: usize,
        max_bytes: usize,
    },
}

/// A transaction that CheckTx accepted.
struct Waiting {
    bytes: Vec<u8>,
    tx: DecodedTx,
}

/// The mempool and the check state.
pub(super) struct Mempool {
    limits: Limits,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    cache: Cache,
    /// Changes that accepted transactions would make, over the newest committed state.
    check: Writes,
}

impl Mempool {
    pub(super) fn new(limits: Limits) -> Self {
        let cache = Cache::new(limits.cache);
        Self {
            limits,
            waiting: VecDeque::new(),
            bytes: 0,
            cache,
            check: Writes::new(),
        }
    }

    /// Offers a transaction: the outer error is the mempool's, the inner one CheckTx's.
    pub(super) fn offer(
        &mut self,
        params: &ParamsView,
        tip: &Tip,
        state: &dyn Kv,
        bytes: Vec<u8>,
    ) -> Result<Result<(), TxError>, Refused> {
        let Limits {
            mempool_txs,
            mempool_bytes,
            tx_bytes,
            ..
        } = self.limits;
        if self.waiting.len() >= mempool_txs || self.bytes.saturating_add(bytes.len()) > mempool_bytes {
            return Err(Refused::Full {
                txs: self.waiting.len(),
                max_txs: mempool_txs,
                bytes: self.bytes,
                max_bytes: mempool_bytes,
            });
        }
        if bytes.len() > tx_bytes {
            return Err(Refused::TooLarge {
                size: bytes.len(),
                max: tx_bytes,
            });
        }
        let hash = tx::hash(&bytes);
        if !self.cache.insert(hash) {
            return Err(Refused::Cached);
        }
        let outcome = DecodedTx::decode(&bytes).and_then(|tx| {
            let mut layer = Layer::with(state, std::mem::take(&mut self.check));
            let context = params.context(tip.height, tip.time_nanos, tip.app_hash());
            let outcome = tx::check(&context, &params.rules, Mode::Check, &mut layer, &tx);
            self.check = layer.into_writes();
            outcome.map(|_| tx)
        });
        Ok(match outcome {
            Ok(tx) => {
                self.bytes = self.bytes.saturating_add(bytes.len());
                self.waiting.push_back(Waiting { bytes, tx });
                Ok(())
            }
            Err(error) => {
                self.cache.remove(&hash);
                Err(error)
            }
        })
    }

    /// The transactions of the next block: in order of arrival, as many as its limits allow.
    pub(super) fn take(&self, block_bytes: usize, block_gas: Option<u64>) -> Vec<Vec<u8>> {
        let mut chosen = Vec::new();
        let (mut bytes, mut gas) = (0usize, 0u64);
        for waiting in &self.waiting {
            bytes = bytes.saturating_add(waiting.bytes.len());
            gas = gas.saturating_add(waiting.tx.fee.gas_limit);
            if bytes > block_bytes || block_gas.is_some_and(|max| gas > max) {
                break;
            }
            chosen.push(waiting.bytes.clone());
        }
        chosen
    }

    /// After a commit: forgets what the block contained (`failed` may be sent again) and checks the rest
    /// against the new state.
    pub(super) fn committed(
        &mut self,
        params: &ParamsView,
        tip: &Tip,
        state: &dyn Kv,
        included: usize,
        failed: &HashSet<[u8; 32]>,
    ) {
        for hash in failed {
            self.cache.remove(hash);
        }
        let rest = self.waiting.split_off(included.min(self.waiting.len()));
        self.waiting.clear();
        self.bytes = 0;
        let mut layer = Layer::over(state);
        let context = params.context(tip.height, tip.time_nanos, tip.app_hash());
        for waiting in rest {
            match tx::check(&context, &params.rules, Mode::Recheck, &mut layer, &waiting.tx) {
                Ok(_) => {
                    self.bytes = self.bytes.saturating_add(waiting.bytes.len());
                    self.waiting.push_back(waiting);
                }
                Err(error) => {
                    tracing::info!(hash = hex::encode_upper(waiting.tx.hash), %error, "dropped from the mempool");
                    self.cache.remove(&waiting.tx.hash);
                }
            }
        }
        self.check = layer.into_writes();
    }

    /// Forgets everything, the cache too, as a restart of a node does.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limits.clone());
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn resize(&mut self, txs: usize) {
        self.limits.mempool_txs = txs;
    }
}

/// Hashes of transactions seen lately, oldest forgotten first.
struct Cache {
    size: usize,
    order: VecDeque<[u8; 32]>,
    known: HashSet<[u8; 32]>,
}

impl Cache {
    fn new(size: usize) -> Self {
        Self {
            size,
            order: VecDeque::new(),
            known: HashSet::new(),
        }
    }

    /// Returns false if the hash was known.
    fn insert(&mut self, hash: [u8; 32]) -> bool {
        if !self.known.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        while self.order.len() > self.size {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
        true
    }

    fn remove(&mut self, hash: &[u8; 32]) {
        if self.known.remove(hash) {
            self.order.retain(|known| known != hash);
        }
    }
}
