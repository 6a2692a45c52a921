//! The chain itself: blocks, mempool, storage.

mod block;
mod clock;
mod commit;
mod header;
mod mempool;
mod node;
mod replay;
mod search;
mod snapshot;
mod store;
mod tables;
mod validator;

pub(crate) use block::Block;
pub(crate) use commit::sign;
pub(crate) use header::{BlockId, header, merkle_aunts, merkle_root};
pub(crate) use node::{Committed, Node};
pub use replay::{Verified, verify};
pub(crate) use search::Query;
pub(crate) use snapshot::{IndexedTx, Snapshot};
pub(crate) use validator::{POWER, validator_address, validator_key};
