//! The database: one write transaction a block, durable before the block is announced.

use std::path::Path;
use std::sync::Arc;

use prost::Message;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, ReadableTable, Table};

use super::block::{Block, state_hash};
use super::snapshot::{Snapshot, Tip};
use super::tables::{BLOCKS, META, STATE, TAGS, TXS, decode, tag};
use crate::error::Error;
use crate::genesis::Genesis;
use crate::kv::{Layer, Nothing, Writes};
use crate::tx;

/// Raised when what is written changes so that an older file cannot be read.
const FORMAT: &[u8] = b"1";

/// Turns the database's errors into this crate's.
macro_rules! database_errors {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Database(error.to_string())
            }
        })*
    };
}

database_errors!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

/// The database of one chain.
#[derive(Clone)]
pub(crate) struct Store {
    db: Arc<Database>,
}

impl Store {
    /// Opens the file, or a database in memory, and writes the genesis into an empty one.
    pub(crate) fn open(path: Option<&Path>, genesis: &Genesis) -> Result<Self, Error> {
        let db = match path {
            Some(path) => Database::create(path)?,
            None => Database::builder().create_with_backend(InMemoryBackend::new())?,
        };
        let store = Self { db: Arc::new(db) };
        store.initialise(genesis)?;
        Ok(store)
    }

    /// Writes the genesis, or checks that it is the one that was written.
    fn initialise(&self, genesis: &Genesis) -> Result<(), Error> {
        let write = self.db.begin_write()?;
        {
            let mut meta = write.open_table(META)?;
            if let Some(format) = meta.get("format")? {
                if format.value() != FORMAT {
                    return Err(Error::Damaged(
                        "it was written by another version of this program".to_string(),
                    ));
                }
                let known = meta
                    .get("genesis")?
                    .map(|value| serde_json::from_slice::<Genesis>(value.value()));
                return match known {
                    Some(Ok(known)) if known == *genesis => Ok(()),
                    _ => Err(Error::Genesis(
                        "the state was made with another genesis; choose another --home".to_string(),
                    )),
                };
            }
            let mut layer = Layer::over(&Nothing);
            genesis.apply(&mut layer)?;
            let writes = layer.into_writes();
            let text = serde_json::to_vec(genesis).map_err(|error| Error::Genesis(error.to_string()))?;
            let tip = Tip::genesis(state_hash(&[], 0, &writes)).encode();
            meta.insert("format", FORMAT)?;
            meta.insert("genesis", text.as_slice())?;
            meta.insert("first", tip.as_slice())?;
            meta.insert("tip", tip.as_slice())?;
            put(&mut write.open_table(STATE)?, &writes)?;
            write.open_table(BLOCKS)?;
            write.open_table(TXS)?;
            write.open_table(TAGS)?;
        }
        Ok(write.commit()?)
    }

    /// Writes a block with its state changes and index, durably and all at once.
    pub(crate) fn commit(&self, height: u64, block: &Block, writes: &Writes) -> Result<(), Error> {
        let write = self.db.begin_write()?;
        {
            put(&mut write.open_table(STATE)?, writes)?;
            let tip = Tip::after(height, block).encode();
            write.open_table(META)?.insert("tip", tip.as_slice())?;
            let mut blocks = write.open_table(BLOCKS)?;
            blocks.insert(height, block.encode_to_vec().as_slice())?;
            let mut txs = write.open_table(TXS)?;
            let mut tags = write.open_table(TAGS)?;
            for (index, (bytes, result)) in (0u32..).zip(block.txs.iter().zip(&block.results)) {
                let hash = tx::hash(bytes);
                // As CometBFT's index: a failed repetition does not hide the transaction that took effect.
                if result.code == 0 || !succeeded(&txs, &blocks, &hash)? {
                    txs.insert(&hash, (height, index))?;
                }
                for event in &result.events {
                    for attribute in &event.attributes {
                        let name = format!("{}.{}", event.kind, attribute.key);
                        let mut key = tag(&name, &attribute.value).to_vec();
                        key.extend_from_slice(&height.to_be_bytes());
                        key.extend_from_slice(&index.to_be_bytes());
                        tags.insert(key.as_slice(), ())?;
                    }
                }
            }
        }
        Ok(write.commit()?)
    }

    /// A consistent view of everything as of the newest committed block.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::new(self.db.begin_read()?)
    }
}

/// Whether the index has this transaction with code 0.
fn succeeded(
    txs: &Table<'_, &[u8; 32], (u64, u32)>,
    blocks: &Table<'_, u64, &[u8]>,
    hash: &[u8; 32],
) -> Result<bool, Error> {
    let Some((height, index)) = txs.get(hash)?.map(|position| position.value()) else {
        return Ok(false);
    };
    let Some(bytes) = blocks.get(height)? else {
        return Ok(false);
    };
    let block = decode(height, bytes.value())?;
    Ok(usize::try_from(index)
        .ok()
        .and_then(|index| block.results.get(index))
        .is_some_and(|r| r.code == 0))
}

fn put(state: &mut Table<'_, &[u8], &[u8]>, writes: &Writes) -> Result<(), Error> {
    for (key, value) in writes {
        match value {
            Some(value) => state.insert(key.as_slice(), value.as_slice())?,
            None => state.remove(key.as_slice())?,
        };
    }
    Ok(())
}
