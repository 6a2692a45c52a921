//! What the contract said in past blocks, in its order.

use hpc_schema::registry::{Event, EventError};

use super::RegistryClient;
use super::data::each_event;
use crate::rpc::{Client, ExecResult, NoResults, RpcError, TxPage, reason};

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
    /// [`RpcError::NotKept`] if none has them and one says that it will not have them (again), [`RpcError::Behind`] if they
    /// are not there yet, another if none can be asked.
    pub async fn events_in_block(&self, height: u64) -> Result<Vec<Told>, RpcError> {
        let results = self
            .chain()
            .endpoints()
            .ask(|c: Client| async move { results(&c, height).await })
            .await?;
        let placed = (0u32..).zip(&results);
        Ok(placed
            .flat_map(|(tx, result)| self.placed(height, tx, result))
            .collect())
    }

    /// Every event of the blocks from `from` to `to`, from the index of transactions, which nodes keep longer than blocks. Only
    /// a node that has block `to`, and that of [`Self::from_height`], is asked: an index says nothing of what it lacks.
    /// `whole`: only one that still has block `from` as well, for one that has come up since, as from a snapshot, never had it.
    ///
    /// # Errors
    /// [`RpcError`]; [`RpcError::Behind`] if no node has come so far, [`RpcError::NotKept`] if none has an index, or such a one,
    /// [`RpcError::TooLarge`] for more than 20,000 transactions.
    pub async fn events_in_index(&self, from: u64, to: u64, whole: bool) -> Result<Vec<Told>, RpcError> {
        let query = format!(
            "execute._contract_address='{}' AND tx.height>={from} AND tx.height<={to}",
            self.contract()
        );
        let wanted = to.max(self.chain().floor());
        let since = whole.then_some(from);
        let mut told = Vec::new();
        for page in 1..=MAX_PAGES {
            let query = query.as_str();
            let found = self
                .chain()
                .endpoints()
                .ask(|c: Client| async move { index_page(&c, query, page, (since, wanted)).await })
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

/// The results of a block. A node that lacks them is passed over for the next one, whether they are gone there or still to
/// come; which of the two it is decides where they are looked for when none has them.
async fn results(client: &Client, height: u64) -> Result<Vec<ExecResult>, RpcError> {
    let (reason, newest) = match client.results_at(height).await {
        Ok(results) => return Ok(results),
        Err(NoResults {
            error: RpcError::Response { message, data, .. },
            newest,
        }) => (reason(message, data), newest),
        Err(none) => return Err(none.error),
    };
    let has = match newest {
        Some(newest) => newest,
        None => client.status().await.map_or(0, |s| s.height),
    };
    tracing::debug!(
        endpoint = client.name(),
        height,
        reason,
        "a node has no results of a block yet"
    );
    Err(behind(client, has, height))
}

/// A page of the index of a node that has block `wanted`, and block `since` if one is given.
async fn index_page(
    client: &Client,
    query: &str,
    page: u32,
    (since, wanted): (Option<u64>, u64),
) -> Result<TxPage, RpcError> {
    let status = client.status().await?;
    // One that catches up writes its index a while after its blocks.
    if status.height < wanted || status.catching_up {
        return Err(behind(client, status.height, wanted));
    }
    let lowest = status.earliest_height;
    if since.is_some_and(|since| lowest > since) {
        return Err(RpcError::NotKept {
            endpoint: client.name().to_owned(),
            what: "an index of transactions from so far back",
            reason: format!("its lowest block is {lowest}"),
            unheard: Vec::new(),
        });
    }
    match client.tx_search(query, page, PER_PAGE).await {
        Err(RpcError::Response { message, data, .. }) => Err(RpcError::NotKept {
            endpoint: client.name().to_owned(),
            what: "an index of transactions",
            reason: reason(message, data),
            unheard: Vec::new(),
        }),
        other => other,
    }
}

fn behind(client: &Client, height: u64, wanted: u64) -> RpcError {
    RpcError::Behind {
        endpoint: client.name().to_owned(),
        height,
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::query::Chain;
    use crate::rpc::stand_in::{asks, endpoint, status};
    use crate::rpc::{ClientOptions, Endpoints};

    /// A node at `height` that answers `block_results` and `tx_search` so; where that is `null` the connection breaks.
    async fn node(height: u64, block_results: Value, tx_search: Value) -> String {
        counting(height, 1, (block_results, tx_search), Arc::default()).await
    }

    /// The same with blocks from `lowest` on, and how often it was asked for its newest block; at height 0 it does not say.
    async fn counting(
        height: u64,
        lowest: u64,
        (block_results, tx_search): (Value, Value),
        asked_height: Arc<AtomicU32>,
    ) -> String {
        endpoint(move |request| {
            let answer = if asks(request, "status") {
                asked_height.fetch_add(1, Ordering::Relaxed);
                if height == 0 {
                    return None;
                }
                status(lowest, height)
            } else if asks(request, "tx_search") {
                tx_search.clone()
            } else {
                block_results.clone()
            };
            (!answer.is_null()).then(|| answer.to_string())
        })
        .await
    }

    fn refused(data: &str) -> Value {
        json!({ "error": { "code": -32603, "message": "Internal error", "data": data } })
    }

    fn nothing() -> Value {
        json!({ "result": { "txs": [], "total_count": "0" } })
    }

    fn client(urls: &[String]) -> RegistryClient {
        let endpoints = Endpoints::new(urls, ClientOptions::default()).unwrap();
        RegistryClient::new(Chain::new(endpoints), "wasm1contract")
    }

    #[tokio::test]
    async fn blocks_that_are_gone_are_told_from_those_that_a_node_lacks_yet() {
        let behind = "height 100 must be less than or equal to the current blockchain height 50";
        let (resets, late) = (
            node(200, Value::Null, nothing()).await,
            node(50, refused(behind), nothing()).await,
        );
        let pruned = node(
            200,
            refused("height 100 is not available, lowest height is 150"),
            nothing(),
        )
        .await;
        let absent = refused("could not find results for height #100");
        let (gone, to_come) = (
            node(200, absent.clone(), nothing()).await,
            node(100, absent, nothing()).await,
        );
        let all = [
            (vec![&resets, &late], false),
            (vec![&late, &resets], false),
            (vec![&to_come], false),
            (vec![&pruned, &late], true),
            // One that cannot be asked may have kept them.
            (vec![&late, &pruned, &resets], false),
            (vec![&resets, &pruned], false),
            (vec![&gone], true),
        ];
        for (urls, is_gone) in all {
            let urls: Vec<String> = urls.into_iter().cloned().collect();
            let failed = client(&urls).events_in_block(100).await.unwrap_err();
            assert_eq!(
                matches!(failed, RpcError::NotKept { .. }),
                is_gone,
                "{urls:?}: {failed}"
            );
        }
    }

    #[tokio::test]
    async fn a_node_without_a_blocks_results_is_asked_once_for_its_newest_block() {
        let absent = "could not find results for height #100";
        let late = "height 100 must be less than or equal to the current blockchain height 50";
        for (why, newest) in [(absent, 50), (late, 50), (absent, 0), (late, 0)] {
            let asked = Arc::new(AtomicU32::new(0));
            let urls = [counting(newest, 1, (refused(why), nothing()), Arc::clone(&asked)).await];
            let failed = client(&urls).events_in_block(100).await.unwrap_err();
            let behind = RpcError::Behind {
                endpoint: urls[0].clone(),
                height: newest,
                wanted: 100,
            };
            assert_eq!(failed, behind);
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{why}, {newest}");
        }
    }

    #[tokio::test]
    async fn the_index_counts_of_a_node_alone_that_has_come_so_far() {
        let (late, ahead) = (
            node(50, Value::Null, nothing()).await,
            node(100, Value::Null, nothing()).await,
        );
        let none = node(100, Value::Null, refused("transaction indexing is disabled")).await;
        let failed = client(std::slice::from_ref(&late))
            .events_in_index(60, 100, false)
            .await;
        assert!(
            matches!(
                failed,
                Err(RpcError::Behind {
                    height: 50,
                    wanted: 100,
                    ..
                })
            ),
            "{failed:?}"
        );
        let both = client(&[late, ahead]);
        assert_eq!(both.events_in_index(60, 100, false).await, Ok(Vec::new()));
        let failed = both.from_height(101).events_in_index(60, 100, false).await;
        assert!(matches!(failed, Err(RpcError::Behind { .. })), "{failed:?}");
        let failed = client(&[none]).events_in_index(60, 100, false).await;
        assert!(matches!(failed, Err(RpcError::NotKept { .. })), "{failed:?}");
    }

    #[tokio::test]
    async fn the_index_of_a_node_that_has_come_up_since_is_taken_alone_where_it_need_not_be_whole() {
        let since_60 = [counting(100, 60, (Value::Null, nothing()), Arc::default()).await];
        let client = client(&since_60);
        assert_eq!(client.events_in_index(60, 100, true).await, Ok(Vec::new()));
        assert_eq!(client.events_in_index(59, 100, false).await, Ok(Vec::new()));
        let failed = client.events_in_index(59, 100, true).await.unwrap_err();
        assert!(
            matches!(failed, RpcError::NotKept { .. })
                && failed.to_string().contains("its lowest block is 60"),
            "{failed}"
        );
    }
}
