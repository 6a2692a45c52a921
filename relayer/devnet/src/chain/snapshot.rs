//! Reading the database as of one block.

use prost::Message;
use redb::ReadTransaction;

use super::block::Block;
use super::header::Previous;
use super::tables::{BLOCKS, META, STATE, TAGS, TXS, decode};
use crate::error::Error;
use crate::kv::{Disk, prefix_end};
use crate::tx::TxResult;

/// The newest block, or genesis (height 0).
#[derive(Clone, Debug)]
pub(crate) struct Tip {
    pub(crate) height: u64,
    pub(crate) time_nanos: u64,
    pub(crate) previous: Previous,
}

/// A [`Tip`] as it is stored.
#[derive(Clone, PartialEq, Message)]
struct StoredTip {
    #[prost(uint64, tag = "1")]
    height: u64,
    #[prost(uint64, tag = "2")]
    time_nanos: u64,
    #[prost(bytes = "vec", tag = "3")]
    hash: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    app_hash: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    results_hash: Vec<u8>,
}

impl Tip {
    pub(super) fn genesis(app_hash: Vec<u8>) -> Self {
        Self {
            height: 0,
            time_nanos: 0,
            previous: Previous::genesis(app_hash),
        }
    }

    pub(super) fn after(height: u64, block: &Block) -> Self {
        Self {
            height,
            time_nanos: block.time_nanos,
            previous: Previous::of(block),
        }
    }

    /// Hash of the newest state.
    pub(crate) fn app_hash(&self) -> &[u8] {
        &self.previous.app_hash
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let stored = StoredTip {
            height: self.height,
            time_nanos: self.time_nanos,
            hash: self.previous.hash.clone().unwrap_or_default(),
            app_hash: self.previous.app_hash.clone(),
            results_hash: self.previous.results_hash.to_vec(),
        };
        stored.encode_to_vec()
    }

    fn load(read: &ReadTransaction, name: &str) -> Result<Self, Error> {
        let damaged = || Error::Damaged(format!("`{name}` is missing or broken"));
        let value = read.open_table(META)?.get(name)?.ok_or_else(damaged)?;
        let stored = StoredTip::decode(value.value()).map_err(|_| damaged())?;
        Ok(Self {
            height: stored.height,
            time_nanos: stored.time_nanos,
            previous: Previous {
                hash: (!stored.hash.is_empty()).then_some(stored.hash),
                app_hash: stored.app_hash,
                results_hash: stored.results_hash.try_into().map_err(|_| damaged())?,
            },
        })
    }
}

/// A transaction found by its hash or events.
#[derive(Debug)]
pub(crate) struct IndexedTx {
    pub(crate) height: u64,
    pub(crate) index: u32,
    pub(crate) tx: Vec<u8>,
    pub(crate) result: TxResult,
}

/// The database as of one block.
pub(crate) struct Snapshot {
    read: ReadTransaction,
    pub(crate) state: Disk,
    pub(crate) tip: Tip,
}

impl Snapshot {
    pub(super) fn new(read: ReadTransaction) -> Result<Self, Error> {
        let state = Disk::new(read.open_table(STATE)?);
        let tip = Tip::load(&read, "tip")?;
        Ok(Self { read, state, tip })
    }

    /// The block at a height, if there is one.
    pub(crate) fn block(&self, height: u64) -> Result<Option<Block>, Error> {
        let bytes = self.read.open_table(BLOCKS)?.get(height)?;
        bytes.map(|bytes| decode(height, bytes.value())).transpose()
    }

    /// What the header at `height` says about the block before.
    pub(crate) fn previous(&self, height: u64) -> Result<Previous, Error> {
        match height.saturating_sub(1) {
            0 => Ok(Tip::load(&self.read, "first")?.previous),
            before => {
                let block = self.block(before)?;
                block
                    .map(|b| Previous::of(&b))
                    .ok_or_else(|| Error::Damaged(format!("block {before} is missing")))
            }
        }
    }

    /// A committed transaction by its hash.
    pub(crate) fn tx(&self, hash: &[u8; 32]) -> Result<Option<IndexedTx>, Error> {
        let found = self
            .read
            .open_table(TXS)?
            .get(hash)?
            .map(|position| position.value());
        found.map(|(height, index)| self.tx_at(height, index)).transpose()
    }

    /// A committed transaction by its position.
    pub(crate) fn tx_at(&self, height: u64, index: u32) -> Result<IndexedTx, Error> {
        let missing = || Error::Damaged(format!("transaction {index} of block {height} is missing"));
        let block = self.block(height)?.ok_or_else(missing)?;
        let at = usize::try_from(index).map_err(|_| missing())?;
        let tx = block.txs.get(at).cloned().ok_or_else(missing)?;
        let result = block.results.get(at).cloned().ok_or_else(missing)?;
        Ok(IndexedTx {
            height,
            index,
            tx,
            result,
        })
    }

    /// Positions of transactions that carry a tag, in block order; at most `limit`.
    pub(crate) fn tagged(&self, tag: &[u8; 16], limit: usize) -> Result<Vec<(u64, u32)>, Error> {
        let tags = self.read.open_table(TAGS)?;
        let end = prefix_end(tag).unwrap_or_else(|| vec![u8::MAX; 28]);
        let mut positions = Vec::new();
        for entry in tags.range::<&[u8]>(tag.as_slice()..end.as_slice())?.take(limit) {
            let (key, _) = entry?;
            let position = key.value().get(16..).and_then(|rest| rest.split_first_chunk());
            if let Some((height, index)) = position
                && let Ok(index) = <[u8; 4]>::try_from(index)
            {
                positions.push((u64::from_be_bytes(*height), u32::from_be_bytes(index)));
            }
        }
        Ok(positions)
    }

    /// Positions of all transactions in the blocks `first..=last`, until there are `limit`.
    pub(crate) fn transactions(&self, first: u64, last: u64, limit: usize) -> Result<Vec<(u64, u32)>, Error> {
        let mut positions = Vec::new();
        for entry in self.read.open_table(BLOCKS)?.range(first..=last)? {
            let (height, bytes) = entry?;
            let block = decode(height.value(), bytes.value())?;
            positions.extend((0u32..).zip(&block.txs).map(|(index, _)| (height.value(), index)));
            if positions.len() >= limit {
                break;
            }
        }
        Ok(positions)
    }

    /// Fails if any read of the state has failed: what was read must not be used.
    pub(crate) fn sound(&self) -> Result<(), Error> {
        self.state
            .failure()
            .map_or(Ok(()), |failure| Err(Error::Database(failure.to_string())))
    }
}
