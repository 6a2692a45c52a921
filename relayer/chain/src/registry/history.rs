//! What the contract said in past blocks, in its order.

use hpc_schema::registry::{Event, EventError};

use super::RegistryClient;
use super::data::each_event;
use crate::rpc::{Client, ExecResult, RpcError};

/// Transactions on a page of the index, as many as a node gives.
const PER_PAGE: u32 = 100;
/// Pages of one search that are read at most.
const MAX_PAGES: u32 = 200;

/// An event and its place on the chain, which no other has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Block.
    pub height: u64,
    /// Number of the transaction in the block.
    pub tx: u32,
    /// Number of the event in the transaction.
    pub item: u32,
    /// The event; an error where this version cannot read one of ours.
    pub event: Result<Event, EventError>,
}

impl RegistryClient {
    /// Every event of the block at `height`, from the first endpoint that has its results.
    ///
    /// # Errors
    /// [`RpcError::Behind`] if no endpoint has them (any more, or yet), another if none can be asked.
    pub async fn events_in_block(&self, height: u64) -> Result<Vec<Told>, RpcError> {
        let results = self
            .chain()
            .endpoints()
            .ask(|c: Client| async move { lacking(&c, height, c.block_results(height).await) })
            .await?;
        let placed = (0u32..).zip(&results);
        Ok(placed
            .flat_map(|(tx, result)| self.placed(height, tx, result))
            .collect())
    }

    /// Every event of the blocks from `from` to `to`, from the index of transactions, which nodes keep longer than blocks.
    ///
    /// # Errors
    /// [`RpcError`]; [`RpcError::TooLarge`] for more than 20,000 transactions.
    pub async fn events_in_index(&self, from: u64, to: u64) -> Result<Vec<Told>, RpcError> {
        let query = format!(
            "execute._contract_address='{}' AND tx.height>={from} AND tx.height<={to}",
            self.contract()
        );
        let mut told = Vec::new();
        for page in 1..=MAX_PAGES {
            let query = query.as_str();
            let found = self
                .chain()
                .endpoints()
                .ask(|c: Client| async move { lacking(&c, to, c.tx_search(query, page, PER_PAGE).await) })
                .await?;
            for tx in &found.txs {
                told.extend(self.placed(tx.height, tx.index, &tx.result));
            }
            if u64::from(page) * u64::from(PER_PAGE) >= found.total {
                told.sort_by_key(|t| (t.height, t.tx, t.item));
                return Ok(told);
            }
        }
        Err(RpcError::TooLarge {
            endpoint: String::new(),
            method: "tx_search",
            limit: usize::try_from(MAX_PAGES * PER_PAGE).unwrap_or(usize::MAX),
        })
    }

    fn placed(&self, height: u64, tx: u32, result: &ExecResult) -> Vec<Told> {
        each_event(result, self.contract())
            .map(|(item, event)| Told {
                height,
                tx,
                item,
                event,
            })
            .collect()
    }
}

/// A node that answers that it lacks a block, or its index, is passed over for the next one.
fn lacking<T>(client: &Client, height: u64, answer: Result<T, RpcError>) -> Result<T, RpcError> {
    answer.map_err(|e| match e {
        RpcError::Response { .. } => RpcError::Behind {
            endpoint: client.name().to_owned(),
            height: 0,
            wanted: height,
        },
        other => other,
    })
}
