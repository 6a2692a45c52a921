//! The running chain: accepts transactions, makes blocks, tells subscribers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, broadcast};

use super::block::{self, Block, ParamsView};
use super::clock::Clock;
use super::header::header;
use super::mempool::{Mempool, Refused};
use super::snapshot::Snapshot;
use super::store::Store;
use crate::config::Config;
use crate::error::Error;
use crate::tx::{Rules, TxError};

/// Blocks that a slow subscriber may lag behind before it is disconnected.
const SUBSCRIBER_LAG: usize = 256;

/// A block that has just been committed.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) height: u64,
    pub(crate) block: Block,
    pub(crate) previous: super::header::Previous,
}

/// One chain.
pub(crate) struct Node {
    pub(crate) params: ParamsView,
    pub(crate) config: Config,
    store: Store,
    writer: Mutex<Writer>,
    commits: broadcast::Sender<Arc<Committed>>,
    halted: AtomicBool,
    /// Told when a transaction waits.
    pub(crate) waiting: Notify,
}

/// What only one thread at a time may touch.
struct Writer {
    mempool: Mempool,
    clock: Clock,
    /// The next block takes the earliest possible time.
    stale: bool,
    /// Why no more blocks are made.
    stopped: Option<String>,
}

impl Node {
    /// Opens the state and makes the first block of a new chain.
    pub(crate) fn open(config: Config) -> Result<Self, Error> {
        let path = config.home.as_ref().map(|home| home.join("state.redb"));
        let store = Store::open(path.as_deref(), &config.genesis)?;
        let params = params(&config);
        let (commits, _) = broadcast::channel(SUBSCRIBER_LAG);
        let writer = Writer {
            mempool: Mempool::new(config.limits.clone()),
            clock: Clock::behind(config.seconds_behind),
            stale: false,
            stopped: None,
        };
        let node = Self {
            params,
            config,
            store,
            writer: Mutex::new(writer),
            commits,
            halted: AtomicBool::new(false),
            waiting: Notify::new(),
        };
        let first = node.snapshot()?.tip.height == 0;
        if first {
            node.produce()?;
        } else {
            node.writer().stale = true;
        }
        Ok(node)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while the lock was held can only have lost a transaction that was not acknowledged.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest committed state.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        self.store.snapshot()
    }

    /// Blocks from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Committed>> {
        self.commits.subscribe()
    }

    /// Offers a transaction to the mempool.
    pub(crate) fn offer(&self, bytes: Vec<u8>) -> Result<Result<Result<(), TxError>, Refused>, Error> {
        let mut writer = self.writer();
        if let Some(reason) = &writer.stopped {
            return Err(Error::Stopped(reason.clone()));
        }
        let snapshot = self.snapshot()?;
        let outcome = writer
            .mempool
            .offer(&self.params, &snapshot.tip, &snapshot.state, bytes);
        snapshot.sound()?;
        drop(writer);
        if matches!(outcome, Ok(Ok(()))) {
            self.waiting.notify_one();
        }
        Ok(outcome)
    }

    /// Makes one block of what waits and returns its height.
    pub(crate) fn produce(&self) -> Result<u64, Error> {
        if self.halted.load(Ordering::SeqCst) {
            return Err(Error::Halted);
        }
        let mut writer = self.writer();
        if let Some(reason) = &writer.stopped {
            return Err(Error::Stopped(reason.clone()));
        }
        let outcome = self.produce_locked(&mut writer);
        if let Err(error) = &outcome {
            writer.stopped = Some(error.to_string());
        }
        outcome
    }

    fn produce_locked(&self, writer: &mut Writer) -> Result<u64, Error> {
        let before = self.snapshot()?;
        let height = before.tip.height.saturating_add(1);
        let time_nanos = writer.clock.block_time(before.tip.time_nanos, writer.stale);
        let txs = writer
            .mempool
            .take(self.params.block_bytes, self.params.rules.max_block_gas);
        let context = self.params.context(height, time_nanos, before.tip.app_hash());
        let executed = block::execute(&context, &self.params.rules, &before.state, &txs);
        before.sound()?;
        let mut block = Block {
            time_nanos,
            app_hash: executed.app_hash,
            hash: Vec::new(),
            txs,
            results: executed.results,
        };
        let previous = before.tip.previous.clone();
        block.hash = header(&self.params.chain_id, height, &block, &previous)?
            .hash()
            .as_bytes()
            .to_vec();
        self.store.commit(height, &block, &executed.writes)?;
        writer.stale = false;

        let after = self.snapshot()?;
        let failed: HashSet<[u8; 32]> = block
            .txs
            .iter()
            .zip(&block.results)
            .filter(|(_, result)| result.code != 0)
            .map(|(tx, _)| crate::tx::hash(tx))
            .collect();
        writer
            .mempool
            .committed(&self.params, &after.tip, &after.state, block.txs.len(), &failed);
        after.sound()?;
        if !block.txs.is_empty() && writer.mempool.len() > 0 {
            self.waiting.notify_one();
        }
        tracing::debug!(height, txs = block.txs.len(), "block committed");
        // Without subscribers the send fails, which is no fault.
        let announced = self.commits.send(Arc::new(Committed {
            height,
            block,
            previous,
        }));
        if announced.is_err() {
            tracing::trace!(height, "no subscribers");
        }
        Ok(height)
    }

    /// Why no more blocks are made, if that is so.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.writer().stopped.clone()
    }

    /// No blocks until [`Node::resume`].
    pub(crate) fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
    }

    /// Goes on; the first block carries the old time, as on a real chain.
    pub(crate) fn resume(&self) {
        if self.halted.swap(false, Ordering::SeqCst) {
            self.writer().stale = true;
            self.waiting.notify_one();
        }
    }

    /// Block time from now on.
    pub(crate) fn set_time(&self, nanos: u64) {
        let mut writer = self.writer();
        writer.clock.set(nanos);
        writer.stale = false;
    }

    /// Forgets all waiting transactions and the cache.
    pub(crate) fn clear_mempool(&self) {
        self.writer().mempool.clear();
    }

    /// Waiting transactions.
    pub(crate) fn mempool_len(&self) -> usize {
        self.writer().mempool.len()
    }

    /// Bounds the number of waiting transactions anew.
    pub(crate) fn set_mempool_size(&self, txs: usize) {
        self.writer().mempool.resize(txs);
    }
}

/// The parameters that execution depends on.
pub(super) fn params(config: &Config) -> ParamsView {
    ParamsView {
        chain_id: config.genesis.chain_id.clone(),
        rules: Rules {
            min_gas_price: config.min_gas_price.clone(),
            max_block_gas: config.genesis.max_block_gas,
            max_memo: 256,
            max_signatures: 7,
            numbering: config.genesis.account_numbers,
        },
        codes: config.codes.clone(),
        block_bytes: config.limits.block_bytes,
    }
}
