//! The database: one write transaction a block, durable before the block is announced.

use std::path::Path;
use std::sync::Arc;

use prost::Message;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::block::{Block, state_hash};
use super::header::Previous;
use super::search::tag;
use crate::error::Error;
use crate::genesis::Genesis;
use crate::kv::{Disk, Layer, Nothing, Writes};
use crate::tx::{self, TxResult};

const STATE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("state");
const BLOCKS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("blocks");
/// Transaction hash to height and index.
const TXS: TableDefinition<'_, &[u8; 32], (u64, u32)> = TableDefinition::new("txs");
/// Event tag ‖ height ‖ index.
const TAGS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("tags");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Raised when what is written changes so that an older file cannot be read.
const FORMAT: &[u8] = b"1";

/// The newest block, or genesis (height 0).
#[derive(Clone, Debug)]
pub(crate) struct Tip {
    pub(crate) height: u64,
    pub(crate) time_nanos: u64,
    pub(crate) previous: Previous,
}

impl Tip {
    /// Hash of the newest state.
    pub(crate) fn app_hash(&self) -> &[u8] {
        &self.previous.app_hash
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

/// The database of one chain.
#[derive(Clone)]
pub(crate) struct Store {
    db: Arc<Database>,
}

impl Store {
    /// Opens the file, or a database in memory, and writes the genesis into an empty one.
    pub(crate) fn open(path: Option<&Path>, genesis: &Genesis) -> Result<Self, Error> {
        let db = match path {
            Some(path) => Database::create(path).map_err(Error::database)?,
            None => Database::builder()
                .create_with_backend(InMemoryBackend::new())
                .map_err(Error::database)?,
        };
        let store = Self { db: Arc::new(db) };
        store.initialise(genesis)?;
        Ok(store)
    }

    fn initialise(&self, genesis: &Genesis) -> Result<(), Error> {
        let text = serde_json::to_vec(genesis).map_err(Error::database)?;
        let write = self.db.begin_write().map_err(Error::database)?;
        {
            let mut meta = write.open_table(META).map_err(Error::database)?;
            let known = meta
                .get("genesis")
                .map_err(Error::database)?
                .map(|value| value.value().to_vec());
            let format = meta
                .get("format")
                .map_err(Error::database)?
                .map(|value| value.value().to_vec());
            if let Some(known) = known {
                if format.as_deref() != Some(FORMAT) {
                    return Err(Error::Damaged(
                        "it was written by another version of this program".to_string(),
                    ));
                }
                let same = serde_json::from_slice::<Genesis>(&known).is_ok_and(|known| known == *genesis);
                return if same {
                    Ok(())
                } else {
                    Err(Error::Genesis(
                        "the state was made with another genesis; choose another --home".to_string(),
                    ))
                };
            }
            let mut layer = Layer::over(&Nothing);
            genesis.apply(&mut layer)?;
            let writes = layer.into_writes();
            meta.insert("app_hash", state_hash(&[], 0, &writes).as_slice())
                .map_err(Error::database)?;
            meta.insert("genesis", text.as_slice()).map_err(Error::database)?;
            meta.insert("format", FORMAT).map_err(Error::database)?;
            let mut state = write.open_table(STATE).map_err(Error::database)?;
            put(&mut state, &writes)?;
            write.open_table(BLOCKS).map_err(Error::database)?;
            write.open_table(TXS).map_err(Error::database)?;
            write.open_table(TAGS).map_err(Error::database)?;
        }
        write.commit().map_err(Error::database)
    }

    /// Writes a block with its state changes and index, durably and all at once.
    pub(crate) fn commit(&self, height: u64, block: &Block, writes: &Writes) -> Result<(), Error> {
        let write = self.db.begin_write().map_err(Error::database)?;
        {
            let mut state = write.open_table(STATE).map_err(Error::database)?;
            put(&mut state, writes)?;
            let mut blocks = write.open_table(BLOCKS).map_err(Error::database)?;
            blocks
                .insert(height, block.encode_to_vec().as_slice())
                .map_err(Error::database)?;
            let mut txs = write.open_table(TXS).map_err(Error::database)?;
            let mut tags = write.open_table(TAGS).map_err(Error::database)?;
            for (index, (bytes, result)) in (0u32..).zip(block.txs.iter().zip(&block.results)) {
                let hash = tx::hash(bytes);
                // As CometBFT's index: a failed repetition does not hide the transaction that took effect.
                if result.code == 0 || !succeeded(&txs, &blocks, &hash)? {
                    txs.insert(&hash, (height, index)).map_err(Error::database)?;
                }
                for event in &result.events {
                    for attribute in &event.attributes {
                        let name = format!("{}.{}", event.kind, attribute.key);
                        let mut key = tag(&name, &attribute.value).to_vec();
                        key.extend_from_slice(&height.to_be_bytes());
                        key.extend_from_slice(&index.to_be_bytes());
                        tags.insert(key.as_slice(), ()).map_err(Error::database)?;
                    }
                }
            }
        }
        write.commit().map_err(Error::database)
    }

    /// A consistent view of everything as of the newest committed block.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        let read = self.db.begin_read().map_err(Error::database)?;
        let state = Disk::new(read.open_table(STATE).map_err(Error::database)?);
        let snapshot = Snapshot {
            read,
            state,
            tip: Tip::empty(),
        };
        let tip = snapshot.load_tip()?;
        Ok(Snapshot { tip, ..snapshot })
    }
}

/// The database as of one block.
pub(crate) struct Snapshot {
    read: ReadTransaction,
    pub(crate) state: Disk,
    pub(crate) tip: Tip,
}

impl Snapshot {
    fn load_tip(&self) -> Result<Tip, Error> {
        let blocks = self.read.open_table(BLOCKS).map_err(Error::database)?;
        let last = blocks.last().map_err(Error::database)?;
        if let Some((height, bytes)) = last {
            let block = decode(height.value(), bytes.value())?;
            return Ok(Tip {
                height: height.value(),
                time_nanos: block.time_nanos,
                previous: Previous::of(&block),
            });
        }
        let meta = self.read.open_table(META).map_err(Error::database)?;
        let hash = meta.get("app_hash").map_err(Error::database)?;
        let hash = hash.ok_or_else(|| Error::Damaged("no genesis state".to_string()))?;
        Ok(Tip {
            height: 0,
            time_nanos: 0,
            previous: Previous::genesis(hash.value().to_vec()),
        })
    }

    /// The block at a height, if there is one.
    pub(crate) fn block(&self, height: u64) -> Result<Option<Block>, Error> {
        let blocks = self.read.open_table(BLOCKS).map_err(Error::database)?;
        let bytes = blocks.get(height).map_err(Error::database)?;
        bytes.map(|bytes| decode(height, bytes.value())).transpose()
    }

    /// What the header at `height` says about the block before.
    pub(crate) fn previous(&self, height: u64) -> Result<Previous, Error> {
        match height.checked_sub(1) {
            Some(before) if before > 0 => {
                let block = self.block(before)?;
                block
                    .map(|b| Previous::of(&b))
                    .ok_or_else(|| Error::Damaged(format!("block {before} is missing")))
            }
            _ => {
                let meta = self.read.open_table(META).map_err(Error::database)?;
                let hash = meta.get("app_hash").map_err(Error::database)?;
                Ok(Previous::genesis(
                    hash.map(|h| h.value().to_vec()).unwrap_or_default(),
                ))
            }
        }
    }

    /// A committed transaction by its hash.
    pub(crate) fn tx(&self, hash: &[u8; 32]) -> Result<Option<IndexedTx>, Error> {
        let txs = self.read.open_table(TXS).map_err(Error::database)?;
        let found = txs
            .get(hash)
            .map_err(Error::database)?
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

    /// Positions of transactions that carry a tag, in block order.
    pub(crate) fn tagged(&self, tag: &[u8; 16], limit: usize) -> Result<Vec<(u64, u32)>, Error> {
        let tags = self.read.open_table(TAGS).map_err(Error::database)?;
        let end = crate::kv::prefix_end(tag).unwrap_or_default();
        let range = tags
            .range::<&[u8]>(tag.as_slice()..end.as_slice())
            .map_err(Error::database)?;
        let mut positions = Vec::new();
        for entry in range.take(limit) {
            let (key, ()) = entry
                .map(|(key, value)| (key.value().to_vec(), value.value()))
                .map_err(Error::database)?;
            let position = key.get(16..).and_then(|rest| rest.split_first_chunk());
            if let Some((height, index)) = position
                && let Ok(index) = <[u8; 4]>::try_from(index)
            {
                positions.push((u64::from_be_bytes(*height), u32::from_be_bytes(index)));
            }
        }
        Ok(positions)
    }

    /// Heights of blocks in `first..=last` that have transactions, with their number.
    pub(crate) fn transactions(&self, first: u64, last: u64, limit: usize) -> Result<Vec<(u64, u32)>, Error> {
        let blocks = self.read.open_table(BLOCKS).map_err(Error::database)?;
        let mut positions = Vec::new();
        for entry in blocks.range(first..=last).map_err(Error::database)? {
            let (height, bytes) = entry.map_err(Error::database)?;
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

impl Tip {
    fn empty() -> Self {
        Self {
            height: 0,
            time_nanos: 0,
            previous: Previous::genesis(Vec::new()),
        }
    }
}

fn decode(height: u64, bytes: &[u8]) -> Result<Block, Error> {
    Block::decode(bytes).map_err(|error| Error::Damaged(format!("block {height}: {error}")))
}

/// Whether the index has this transaction with code 0.
fn succeeded(
    txs: &redb::Table<'_, &[u8; 32], (u64, u32)>,
    blocks: &redb::Table<'_, u64, &[u8]>,
    hash: &[u8; 32],
) -> Result<bool, Error> {
    let Some((height, index)) = txs
        .get(hash)
        .map_err(Error::database)?
        .map(|position| position.value())
    else {
        return Ok(false);
    };
    let Some(bytes) = blocks.get(height).map_err(Error::database)? else {
        return Ok(false);
    };
    let block = decode(height, bytes.value())?;
    Ok(usize::try_from(index)
        .ok()
        .and_then(|index| block.results.get(index))
        .is_some_and(|r| r.code == 0))
}

fn put(state: &mut redb::Table<'_, &[u8], &[u8]>, writes: &Writes) -> Result<(), Error> {
    for (key, value) in writes {
        match value {
            Some(value) => state
                .insert(key.as_slice(), value.as_slice())
                .map_err(Error::database)?,
            None => state.remove(key.as_slice()).map_err(Error::database)?,
        };
    }
    Ok(())
}
