use hpc_chain::settle::BatchId;

use super::super::store::{self, SignedRow};
use crate::db::Conn;
use crate::enrol;
use crate::spool::{self, Member};
use crate::store::StoreError;

/// A signed transaction and what is in it, until both are stored.
#[derive(Debug)]
pub(in crate::settle) struct Bound {
    pub(in crate::settle) batch: BatchId,
    pub(in crate::settle) row: SignedRow,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Reports(Vec<Member>),
    Register(Vec<u64>),
    Upkeep,
}

impl Bound {
    pub(in crate::settle) async fn write(&self, conn: &mut Conn, now_ms: u64) -> Result<(), StoreError> {
        store::record_signed(&mut *conn, self.batch, &self.row).await?;
        match &self.content {
            Content::Reports(members) => spool::bind(conn, self.batch.0, members).await,
            Content::Register(ids) => enrol::bind_to_batch(conn, self.batch.0, ids, now_ms).await,
            Content::Upkeep => Ok(()),
        }
    }

    pub(in crate::settle) fn items(&self) -> usize {
        match &self.content {
            Content::Reports(members) => members.len(),
            Content::Register(ids) => ids.len(),
            Content::Upkeep => 0,
        }
    }
}
