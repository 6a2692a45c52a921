//! What the database holds, key by key.

use prost::Message;
use redb::TableDefinition;
use sha2::{Digest, Sha256};

use super::block::Block;
use crate::error::Error;

/// The application state.
pub(super) const STATE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("state");
/// Height to block with results.
pub(super) const BLOCKS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("blocks");
/// Transaction hash to height and index.
pub(super) const TXS: TableDefinition<'_, &[u8; 32], (u64, u32)> = TableDefinition::new("txs");
/// Event tag ‖ height ‖ index.
pub(super) const TAGS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("tags");
/// `format`, `genesis` (JSON), `tip`, `first` (the tip before the first block).
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Key of the event index: the first 16 bytes of `SHA-256(name ‖ 0 ‖ value)`. Hits are compared with the
/// event itself, so a collision gives nothing wrong.
pub(super) fn tag(name: &str, value: &str) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(name)
        .chain_update([0])
        .chain_update(value)
        .finalize()
        .into();
    digest.first_chunk().copied().unwrap_or_default()
}

pub(super) fn decode(height: u64, bytes: &[u8]) -> Result<Block, Error> {
    Block::decode(bytes).map_err(|error| Error::Damaged(format!("block {height}: {error}")))
}
