use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hpc_chain::registry::{RegistryClient, Told};
use hpc_chain::rpc::{RpcError, Seen};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::Event;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::rows;
use crate::ops::{Health, Metrics};
use crate::registry::{self, Registry, SyncError};
use crate::store::{Store, StoreError};
use crate::{alert, clock, fault};

/// Blocks taken in with one commit.
const WINDOW: u64 = 64;
/// Blocks asked for at a time.
const AT_ONCE: usize = 8;
/// After a failure nothing is asked for so long.
const BACKOFF: Duration = Duration::from_secs(2);
/// Without news of a block it is looked all the same.
const IDLE: Duration = Duration::from_secs(10);
/// So many blocks that wait to be taken in are said to be many.
const BEHIND: u64 = 100;

/// What following needs.
#[derive(Debug, Clone)]
pub struct Follow {
    /// The contract.
    pub client: RegistryClient,
    /// The database.
    pub store: Store,
    /// The chain in memory.
    pub registry: Arc<Registry>,
    /// Readiness.
    pub health: Arc<Health>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Clusters served beside those on record.
    pub clusters: Vec<ClusterId>,
    /// The endpoints' newest blocks.
    pub seen: watch::Receiver<Vec<Seen>>,
}

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a task was cancelled")]
    Cancelled,
}

/// What to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing is on record: events count from here on, the state before is read from the contract.
    Begin(u64),
    /// These blocks, both included.
    Read { from: u64, to: u64 },
    /// There is no new block.
    Wait,
}

fn next(followed: Option<u64>, tip: u64) -> Next {
    match followed {
        _ if tip == 0 => Next::Wait,
        None => Next::Begin(tip),
        Some(at) if at >= tip => Next::Wait,
        Some(at) => Next::Read {
            from: at.saturating_add(1),
            to: tip.min(at.saturating_add(WINDOW)),
        },
    }
}

/// Takes in the events of every block, from the last one in the store on, until `stop`.
pub async fn follow(mut parts: Follow, mut stop: watch::Receiver<bool>) {
    let mut by_index = None;
    loop {
        let tip = newest(&parts.seen.borrow_and_update());
        let turn = tokio::select! {
            turn = parts.turn(tip, &mut by_index) => turn,
            _ = stop.wait_for(|s| *s) => return,
        };
        let pause = match turn {
            Ok(true) => continue,
            Ok(false) => IDLE,
            Err(e) => {
                tracing::debug!(error = %e, "events of the chain cannot be taken in");
                parts.behind(tip, Some(&e)).await;
                BACKOFF
            }
        };
        let failed = pause == BACKOFF;
        tokio::select! {
            () = sleep(pause) => {}
            changed = parts.seen.changed(), if !failed => if changed.is_err() { return },
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

/// Whether no endpoint will have these blocks (again), or none of them fits into an answer: the index of transactions is all
/// there is. Where one is behind or cannot be reached it is asked again.
fn is_gone(error: &RpcError) -> bool {
    matches!(error, RpcError::NotKept { .. } | RpcError::TooLarge { .. })
}

/// The last block of these that an index can be asked for: of the newest one it may not have everything yet.
fn in_index(from: u64, to: u64, tip: u64) -> Option<u64> {
    let to = to.min(tip.saturating_sub(1));
    (from <= to).then_some(to)
}

fn newest(seen: &[Seen]) -> u64 {
    seen.iter()
        .filter_map(|s| s.head)
        .map(|h| h.height)
        .max()
        .unwrap_or(0)
}

impl Follow {
    /// A bounded number of blocks; whether there may be more. `by_index`: those before were read from the index, and these
    /// endpoints, which may have kept them, did not say.
    async fn turn(&self, tip: u64, by_index: &mut Option<BTreeSet<String>>) -> Result<bool, FollowError> {
        match next(rows::followed(self.store.reader()).await?, tip) {
            Next::Wait => Ok(false),
            Next::Begin(height) => {
                let mut tx = self.store.begin().await?;
                rows::advance(&mut tx, height).await?;
                tx.commit().await.map_err(StoreError::from)?;
                self.metrics.events_height.set(height);
                Ok(false)
            }
            Next::Read { from, to } => {
                let Some((told, to)) = self.read((from, to), tip, by_index).await? else {
                    return Ok(false);
                };
                let touched = self.take_in(&told, to).await?;
                self.metrics.events_height.set(to);
                self.behind(tip, None).await;
                self.refresh(touched, to).await;
                Ok(to < tip)
            }
        }
    }

    /// The events of these blocks in the chain's order, and up to which block they are all; none where that has to wait for
    /// the next block.
    async fn read(
        &self,
        (from, to): (u64, u64),
        tip: u64,
        by_index: &mut Option<BTreeSet<String>>,
    ) -> Result<Option<(Vec<Told>, u64)>, FollowError> {
        let error = match self.read_blocks(from, to).await {
            Ok(told) => {
                *by_index = None;
                return Ok(Some((told, to)));
            }
            Err(FollowError::Rpc(e)) if is_gone(&e) => e,
            Err(e) => return Err(e),
        };
        let Some(to) = in_index(from, to, tip) else {
            return Ok(None);
        };
        // A node that has the next block has these in its index.
        let client = self.client.from_height(to.saturating_add(1));
        let unheard = error.unheard();
        // A node that has come up since, as from a snapshot, has an index without them, and those that did not say may have them.
        let told = match client.events_in_index(from, to, true).await {
            Err(e @ RpcError::NotKept { .. }) if unheard.is_empty() && e.unheard().is_empty() => {
                client.events_in_index(from, to, false).await?
            }
            told => told?,
        };
        // With nodes that never keep results it is so at every block: once is enough for each that does not say.
        if by_index
            .as_ref()
            .is_some_and(|known| unheard.iter().all(|one| known.contains(one)))
        {
            tracing::debug!(from, to, %error, "events were read from the index of transactions");
        } else {
            tracing::warn!(from, to, %error,
                "no endpoint has these blocks any more; their events were read from the index of transactions");
        }
        by_index.get_or_insert_default().extend(unheard.iter().cloned());
        Ok(Some((told, to)))
    }

    async fn read_blocks(&self, from: u64, to: u64) -> Result<Vec<Told>, FollowError> {
        let mut heights = from..=to;
        let mut asked: JoinSet<Result<Vec<Told>, RpcError>> = JoinSet::new();
        let mut told = Vec::new();
        loop {
            while asked.len() < AT_ONCE
                && let Some(height) = heights.next()
            {
                let client = self.client.clone();
                asked.spawn(async move { client.events_in_block(height).await });
            }
            match asked.join_next().await {
                Some(Ok(events)) => told.extend(events?),
                Some(Err(_)) => return Err(FollowError::Cancelled),
                None => break,
            }
        }
        told.sort_by_key(|t| (t.height, t.tx, t.item));
        Ok(told)
    }

    /// Writes what is new, and how far it goes, in one commit; gives the nodes that it is of.
    async fn take_in(
        &self,
        told: &[Told],
        to: u64,
    ) -> Result<BTreeMap<ClusterId, BTreeSet<NodeId>>, FollowError> {
        let served = registry::served(&self.store, &self.clusters).await?;
        let now_ms = clock::now_ms();
        let mut touched: BTreeMap<ClusterId, BTreeSet<NodeId>> = BTreeMap::new();
        let mut new: Vec<Event> = Vec::new();
        let mut tx = self.store.begin().await?;
        for one in told {
            let event = match &one.event {
                Ok(event) => event,
                Err(e) => {
                    tracing::error!(height = one.height, error = %e,
                        "an event of the contract cannot be read and is passed over; is this daemon older than the contract?");
                    continue;
                }
            };
            for event in event.of_each_node() {
                let Some((cluster, node)) = rows::subject(&event).filter(|(c, _)| served.contains(*c)) else {
                    continue;
                };
                if rows::record(&mut tx, one, &event, (cluster, node), now_ms).await? {
                    rows::note_deregistration(&mut tx, &event, (cluster, node)).await?;
                    alert::on_event(&mut tx, &event, (cluster, node), now_ms).await?;
                    touched.entry(cluster.clone()).or_default().insert(node.clone());
                    new.push(event);
                }
            }
        }
        rows::advance(&mut tx, to).await?;
        fault::point("events.written");
        tx.commit().await.map_err(StoreError::from)?;
        fault::point("events.committed");
        for event in &new {
            self.metrics.event(event.ty());
            if let (Some((cluster, node)), Event::Transition { from, to, reason, .. }) =
                (rows::subject(event), event)
            {
                tracing::info!(%cluster, %node, %from, %to, reason, "a node changed its state");
            }
        }
        Ok(touched)
    }

    /// Reads the nodes anew that the events are of. What fails comes with the next round of all nodes.
    async fn refresh(&self, touched: BTreeMap<ClusterId, BTreeSet<NodeId>>, height: u64) {
        let client = self.client.from_height(height);
        for (cluster, ids) in touched {
            let ids: Vec<NodeId> = ids.into_iter().collect();
            let read = registry::sync_nodes(
                &client,
                &self.store,
                &self.registry,
                &cluster,
                &ids,
                clock::now_ms(),
            );
            match read.await {
                Ok(()) => {}
                Err(e @ SyncError::Query(_)) => {
                    tracing::debug!(%cluster, error = %e, "nodes are read again at the next round");
                }
                Err(e) => tracing::warn!(%cluster, error = %e, "nodes are read again at the next round"),
            }
        }
    }

    async fn behind(&self, tip: u64, error: Option<&FollowError>) {
        let at = rows::followed(self.store.reader()).await.ok().flatten();
        let left = at.map_or(0, |at| tip.saturating_sub(at));
        let wrong = (left > BEHIND).then(|| {
            let why = error.map_or_else(String::new, |e| format!(": {e}"));
            format!("the events of {left} blocks are still to be read{why}")
        });
        self.health.set("events_behind", wrong);
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use hpc_chain::query::Chain;
    use hpc_chain::rpc::{ClientOptions, Endpoints};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    /// An endpoint at `height` that answers `block_results` with this text, and whose index has nothing.
    async fn endpoint(height: u64, results: String) -> String {
        endpoint_since(1, height, results).await
    }

    /// The same with blocks from `lowest` on.
    async fn endpoint_since(lowest: u64, height: u64, results: String) -> String {
        let nothing = json!({ "result": { "txs": [], "total_count": "0" } }).to_string();
        endpoint_with(lowest, height, results, nothing).await
    }

    /// The same with this answer of its index.
    async fn endpoint_with(lowest: u64, height: u64, results: String, index: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = move |body: String| {
            let (results, index) = (results.clone(), index.clone());
            async move {
                let call: Value = serde_json::from_str(&body).unwrap();
                match call["method"].as_str().unwrap() {
                    "status" => json!({ "result": {
                        "node_info": { "network": "chain-1" },
                        "sync_info": {
                            "latest_block_height": height.to_string(), "latest_block_time": "2026-01-30T14:05:00Z",
                            "earliest_block_height": lowest.to_string(), "catching_up": false
                        }
                    } })
                    .to_string(),
                    "tx_search" => index,
                    _ => results,
                }
            }
        };
        let router: Router = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn refused(data: &str) -> String {
        json!({ "error": { "code": -32603, "message": "Internal error", "data": data } }).to_string()
    }

    /// What has been taken in up to block 100, with these endpoints.
    async fn at_100(dir: &std::path::Path, urls: &[String]) -> Follow {
        let store = Store::open(&dir.join("p.db")).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        rows::advance(&mut tx, 100).await.unwrap();
        tx.commit().await.unwrap();
        Follow {
            client: client(Endpoints::new(urls, ClientOptions::default()).unwrap()),
            store,
            registry: Arc::new(Registry::new("chain-1", "wasm1contract")),
            health: Arc::default(),
            metrics: Arc::default(),
            clusters: Vec::new(),
            seen: watch::channel(Vec::new()).1,
        }
    }

    fn client(endpoints: Endpoints) -> RegistryClient {
        RegistryClient::new(Chain::new(endpoints), "wasm1contract")
    }

    async fn taken_in(parts: &Follow) -> Option<u64> {
        rows::followed(parts.store.reader()).await.unwrap()
    }

    #[tokio::test]
    async fn no_block_is_passed_over_because_one_endpoint_breaks_off_and_another_is_behind() {
        let breaks = endpoint(300, "no answer of a node".to_owned()).await;
        let late = "height 101 must be less than or equal to the current blockchain height 80";
        let late = endpoint(80, refused(late)).await;
        let gone = "height 101 is not available, lowest height is 250";
        let (pruned, pruned_late) = (
            endpoint(300, refused(gone)).await,
            endpoint(80, refused(gone)).await,
        );
        let all = [
            (vec![breaks.clone(), late.clone()], None),
            (vec![late.clone(), breaks], None),
            // The index of one that has not come so far says nothing.
            (vec![pruned_late], None),
            (vec![late, pruned], Some(164)),
        ];
        for (urls, to) in all {
            let dir = tempfile::tempdir().unwrap();
            let parts = at_100(dir.path(), &urls).await;
            let mut by_index = None;
            let turn = parts.turn(300, &mut by_index).await;
            let was_read = (turn.is_ok(), by_index.is_some());
            assert_eq!(was_read, (to.is_some(), to.is_some()), "{urls:?}");
            assert_eq!(taken_in(&parts).await, to.or(Some(100)), "{urls:?}");
        }
    }

    const DOWN: &str = "http://127.0.0.1:9";

    async fn five_minutes() {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(301)).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn an_endpoint_that_is_down_for_good_holds_up_no_events_that_the_others_have() {
        for of_chain in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let keeps_none = refused("node is not persisting finalize block responses");
            let urls = [DOWN.to_owned(), endpoint(300, keeps_none).await];
            let mut parts = at_100(dir.path(), &urls).await;
            if of_chain {
                let endpoints = Endpoints::new(&urls, ClientOptions::default()).unwrap();
                parts.client = client(endpoints.of_chain("chain-1"));
            }
            let mut by_index = None;
            // It may come back, with what the other one keeps no more.
            assert!(parts.turn(300, &mut by_index).await.is_err());
            assert_eq!(taken_in(&parts).await, Some(100));
            five_minutes().await;
            assert!(parts.turn(300, &mut by_index).await.unwrap());
            assert_eq!(taken_in(&parts).await, Some(164), "{of_chain}");
            assert_eq!(by_index, Some(BTreeSet::from([DOWN.to_owned()])));
        }
    }

    #[tokio::test]
    async fn no_event_is_passed_over_because_one_endpoint_is_away_or_behind_and_another_has_come_up_since() {
        let late = "height 101 must be less than or equal to the current blockchain height 100";
        let within = endpoint(130, refused("node is not persisting finalize block responses")).await;
        for other in [DOWN.to_owned(), endpoint(100, refused(late)).await, within] {
            let dir = tempfile::tempdir().unwrap();
            let gone = refused("height 101 is not available, lowest height is 250");
            let urls = [other.clone(), endpoint_since(250, 300, gone).await];
            let mut parts = at_100(dir.path(), &urls).await;
            let mut by_index = None;
            assert!(parts.turn(300, &mut by_index).await.is_err());
            five_minutes().await;
            let failed = parts.turn(300, &mut by_index).await.unwrap_err().to_string();
            for word in [
                "its lowest block is 250",
                &other,
                "did not say: without an answer for five minutes, behind, or refusing",
            ] {
                assert!(failed.contains(word), "{failed}");
            }
            assert_eq!((taken_in(&parts).await, by_index.as_ref()), (Some(100), None));
            // It is one of them no more.
            parts.client = client(Endpoints::new(&urls[1..], ClientOptions::default()).unwrap());
            assert!(parts.turn(300, &mut by_index).await.unwrap());
            assert_eq!(
                (taken_in(&parts).await, by_index),
                (Some(164), Some(BTreeSet::new()))
            );
        }
    }

    #[tokio::test]
    async fn the_index_of_a_node_that_has_come_up_since_is_not_taken_where_another_has_it_whole() {
        let keeps_none = refused("node is not persisting finalize block responses");
        // It is asked, and breaks off this once.
        let whole = endpoint_with(1, 300, keeps_none, "no answer of a node".to_owned()).await;
        let gone = refused("height 101 is not available, lowest height is 250");
        let since = endpoint_since(250, 300, gone).await;
        for urls in [[whole.clone(), since.clone()], [since, whole]] {
            let dir = tempfile::tempdir().unwrap();
            let parts = at_100(dir.path(), &urls).await;
            let failed = parts.turn(300, &mut None).await.is_err();
            assert_eq!((failed, taken_in(&parts).await), (true, Some(100)), "{urls:?}");
        }
    }

    #[tokio::test]
    async fn with_nodes_that_keep_no_results_events_are_read_one_block_late() {
        let dir = tempfile::tempdir().unwrap();
        let keeps_none = refused("node is not persisting finalize block responses");
        let parts = at_100(dir.path(), &[endpoint(103, keeps_none).await]).await;
        let mut by_index = None;
        assert!(parts.turn(103, &mut by_index).await.unwrap());
        assert_eq!(
            (taken_in(&parts).await, by_index.clone()),
            (Some(102), Some(BTreeSet::new()))
        );
        assert!(
            !parts.turn(103, &mut by_index).await.unwrap(),
            "until the next block"
        );
        assert_eq!(taken_in(&parts).await, Some(102));
    }

    #[test]
    fn blocks_are_read_from_the_last_on_record_a_window_at_a_time() {
        assert_eq!(next(None, 0), Next::Wait);
        assert_eq!(next(None, 7), Next::Begin(7));
        assert_eq!(next(Some(7), 7), Next::Wait);
        assert_eq!(next(Some(9), 7), Next::Wait, "an endpoint is behind");
        assert_eq!(next(Some(7), 8), Next::Read { from: 8, to: 8 });
        let (mut at, mut read) = (7, Vec::new());
        while let Next::Read { from, to } = next(Some(at), 1000) {
            assert!(from == at + 1 && to - at <= WINDOW);
            read.extend(from..=to);
            at = to;
        }
        assert!(read.into_iter().eq(8..=1000), "each once, none left out");
    }
}
