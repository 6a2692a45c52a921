mod gone;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hpc_chain::code::Class;
use hpc_chain::query::QueryError;
use hpc_chain::registry::RegistryClient;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{NodeFilter, RelayView};
use hpc_schema::time::UnixSeconds;
use tokio::task::yield_now;

use super::node::Node;
use super::view::Registry;
use super::{contacts, store};
use crate::db;
use crate::store::{Store, StoreError};
use crate::{command, spool};

/// Nodes asked for at once; the contract answers at most 100.
const CHUNK: usize = 100;
/// Nodes of a cluster read in one round. What happens to a node comes with the contract's events, so that reading all of a
/// large cluster every few seconds would only cost: it is done in turns.
const A_ROUND: usize = 500;
/// Pages of a cluster's list read at most: 6,400,000 nodes.
const MAX_LIST_PAGES: usize = 65_536;

/// The chain could not be read, or what was read not be stored.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The chain.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A cluster, for a reason that is its own.
    #[error("cluster {0} cannot be read, which keeps no other from being read: {1}")]
    Cluster(ClusterId, Box<SyncError>),
}

impl SyncError {
    /// Whether it is about what was asked for alone: the chain answers, and may well answer what is asked of other clusters.
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        match self {
            Self::Query(e) => e.class() == Class::Rejected,
            Self::Cluster(..) => true,
            Self::Store(_) => false,
        }
    }
}

/// The clusters served: those configured, those with tokens, and those with nodes on record.
///
/// # Errors
/// If the store fails.
pub async fn served(store: &Store, configured: &[ClusterId]) -> Result<BTreeSet<ClusterId>, StoreError> {
    let rows = db::query("SELECT cluster_id FROM token UNION SELECT cluster_id FROM join_token UNION SELECT cluster_id FROM node")
        .fetch_all(store.reader())
        .await?;
    let mut clusters: BTreeSet<ClusterId> = configured.iter().cloned().collect();
    for row in rows {
        let text: String = row.try_get(0)?;
        clusters.extend(text.parse::<ClusterId>().ok());
    }
    Ok(clusters)
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub struct Turns {
    /// The last node read of each cluster.
    last: BTreeMap<ClusterId, NodeId>,
    /// The clusters that the chain has and that have been looked for once.
    met: BTreeSet<ClusterId>,
}

impl Turns {
    /// The next of those known, at most [`A_ROUND`]; after the last come the first.
    fn next(&mut self, cluster: &ClusterId, registry: &Registry) -> Vec<NodeId> {
        let next = registry.turn(cluster, self.last.get(cluster), A_ROUND);
        if let Some(last) = next.last() {
            self.last.insert(cluster.clone(), last.clone());
        }
        next
    }
}

/// Reads parameters, clusters and those of their nodes whose turn it is; `discover` asks which nodes there are, which
/// finds again what a lost disk has forgotten, and reads them all. Of a cluster that is served from now on they are asked
/// for as well.
///
/// # Errors
/// [`SyncError`]; what was read before stays, and one that is about a cluster alone keeps no other from being read.
pub async fn sync(
    client: &RegistryClient,
    db: &Store,
    registry: &Registry,
    configured: &[ClusterId],
    turns: &mut Turns,
    discover: bool,
    now_ms: u64,
) -> Result<(), SyncError> {
    // Before the chain is asked: it may not answer.
    contacts::save_contacts(db, registry).await?;
    let params = client.params().await?.value;
    registry.set_params(params.clone());
    let mut tx = db.begin().await?;
    store::save_params(&mut tx, &params).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let mut clusters = served(db, configured).await?;
    // Another gateway may have taken the nodes of a cluster from the store they share.
    clusters.extend(registry.clusters_with_nodes());
    let mut outcome = Ok(());
    for cluster in &clusters {
        let discover = discover || !turns.met.contains(cluster);
        let there = match sync_whole(client, db, registry, cluster, turns, discover, now_ms).await {
            Err(e) if e.is_of_one() => {
                let e = SyncError::Cluster(cluster.clone(), Box::new(e));
                tracing::debug!("{e}");
                outcome = outcome.and(Err(e));
                true
            }
            // No other cluster could be read either.
            Err(e) => return Err(e),
            Ok(there) => {
                if discover {
                    registry.read_whole(cluster);
                }
                there
            }
        };
        // One that is not there may be a moment later, or for another endpoint.
        if there {
            turns.met.insert(cluster.clone());
        } else {
            turns.met.remove(cluster);
        }
    }
    registry.looked_for(clusters);
    registry.refresh_peers(now_ms).await;
    outcome
}

/// Reads a cluster with its nodes; whether the chain has it.
async fn sync_whole(
    client: &RegistryClient,
    db: &Store,
    registry: &Registry,
    cluster: &ClusterId,
    turns: &mut Turns,
    discover: bool,
    now_ms: u64,
) -> Result<bool, SyncError> {
    if !sync_cluster(client, db, registry, cluster).await? {
        gone::forget_nodes(client, db, registry, cluster, now_ms).await?;
        return Ok(false);
    }
    let ids = if discover {
        all(registry, cluster, list(client, cluster).await?).await
    } else {
        turns.next(cluster, registry)
    };
    sync_nodes(client, db, registry, cluster, &ids, now_ms).await?;
    Ok(true)
}

/// Reads a cluster; whether the chain has it. A token may have been made before its cluster.
///
/// # Errors
/// [`SyncError`].
pub async fn sync_cluster(
    client: &RegistryClient,
    db: &Store,
    registry: &Registry,
    cluster_id: &ClusterId,
) -> Result<bool, SyncError> {
    let cluster = match client.cluster(cluster_id.clone()).await {
        Ok(answer) => answer.value.cluster,
        Err(e) if gone::is_unknown(&e) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    let mut tx = db.begin().await?;
    store::save_cluster(&mut tx, &cluster).await?;
    tx.commit().await.map_err(StoreError::from)?;
    registry.set_cluster(cluster);
    Ok(true)
}

/// Those listed and those known, in their order; in pieces, so that answers do not wait for it.
async fn all(registry: &Registry, cluster: &ClusterId, listed: BTreeSet<NodeId>) -> Vec<NodeId> {
    let (mut ids, mut last) = (listed, None);
    loop {
        let known = registry.ids_after(cluster, last.take(), A_ROUND);
        let Some(end) = known.last() else { break };
        last = Some(end.clone());
        ids.extend(known);
        yield_now().await;
    }
    ids.into_iter().collect()
}

async fn list(client: &RegistryClient, cluster: &ClusterId) -> Result<BTreeSet<NodeId>, QueryError> {
    let mut ids = BTreeSet::new();
    let mut after = None;
    for _ in 0..MAX_LIST_PAGES {
        let filter = NodeFilter {
            cluster_id: Some(cluster.clone()),
            ..NodeFilter::default()
        };
        let page = client.nodes(filter, after, Some(100)).await?.value;
        ids.extend(page.nodes.into_iter().map(|n| n.node_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(ids)
}

/// Reads these nodes of a cluster. A newer registration ends what waits of an older one.
///
/// # Errors
/// [`SyncError`]; what was read before stays.
pub async fn sync_nodes(
    client: &RegistryClient,
    db: &Store,
    registry: &Registry,
    cluster: &ClusterId,
    ids: &[NodeId],
    now_ms: u64,
) -> Result<(), SyncError> {
    for chunk in ids.chunks(CHUNK) {
        let answer = client.relay(cluster.clone(), chunk.to_vec()).await?;
        let read = Read {
            cluster,
            asked: chunk,
            nodes: answer.value.nodes,
            height: answer.height,
        };
        take_in(db, registry, read, now_ms).await?;
    }
    Ok(())
}

/// Some nodes of a cluster as the contract has them at a height.
struct Read<'a> {
    cluster: &'a ClusterId,
    asked: &'a [NodeId],
    nodes: Vec<RelayView>,
    height: u64,
}

/// Takes an answer into memory and store. If it cannot be stored, memory goes back: it would never be stored otherwise, for
/// the next answer is no news.
async fn take_in(db: &Store, registry: &Registry, read: Read<'_>, now_ms: u64) -> Result<(), StoreError> {
    let (cluster, height) = (read.cluster, read.height);
    let before: Vec<_> = read
        .asked
        .iter()
        .map(|id| (id, registry.node(cluster, id)))
        .collect();
    let stored = store_all(db, registry, read, now_ms).await;
    if stored.is_err() {
        for (id, before) in before {
            registry.restore(cluster, id, before.as_ref(), height);
        }
    }
    stored
}

async fn store_all(db: &Store, registry: &Registry, read: Read<'_>, now_ms: u64) -> Result<(), StoreError> {
    let Read {
        cluster,
        asked,
        nodes,
        height,
    } = read;
    let found: BTreeSet<NodeId> = nodes.iter().map(|n| n.node_id.clone()).collect();
    let mut tx = db.begin().await?;
    let mut news = BTreeMap::new();
    for view in nodes {
        let id = view.node_id.clone();
        let before = registry.node(cluster, &id);
        let changed = registry.set_node(cluster, view, height, UnixSeconds(now_ms / 1000));
        if before.is_none()
            && let Some(contact) = contacts::contact_of(&mut tx, cluster, &id).await?
        {
            registry.adopt_contact(cluster, &id, &contact);
        }
        let order = |n: &Node| n.contact.order.clone();
        if let Some(after) = registry.node(cluster, &id)
            && before.as_deref().and_then(order) != order(&after)
        {
            command::record_order(&mut tx, &after).await?;
        }
        let Some(node) = changed else { continue };
        if before.map(|n| n.chain.epoch) != Some(node.chain.epoch) {
            spool::supersede_older(&mut tx, cluster, &node.node_id, node.chain.epoch, now_ms).await?;
        }
        news.insert(id, node);
    }
    let news: Vec<Arc<Node>> = news.into_values().collect();
    store::save_nodes(&mut tx, &news).await?;
    for gone in asked.iter().filter(|id| !found.contains(*id)) {
        // An endpoint that lags behind does not know younger nodes yet.
        let current = registry.node(cluster, gone).is_some_and(|n| height >= n.height);
        if current && registry.remove_node(cluster, gone) {
            store::delete_node(&mut tx, cluster, gone).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}

#[cfg(test)]
mod round_tests;

#[cfg(test)]
mod tests {

    use super::*;
    use crate::registry::{ProbeEndpoint, Whose, scene};

    fn view(epoch: u64) -> RelayView {
        let view = scene::view();
        RelayView { epoch, ..view }
    }

    #[test]
    fn every_node_of_a_large_cluster_has_its_turn() {
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let named = |range: std::ops::Range<usize>| -> BTreeSet<NodeId> {
            range.map(|n| format!("node-{n:05}").parse().unwrap()).collect()
        };
        let registry = Registry::new("c", "k");
        let add = |ids: &BTreeSet<NodeId>| {
            for id in ids {
                let node_id = id.clone();
                let view = RelayView { node_id, ..view(1) };
                registry.set_node(&cluster, view, 1, UnixSeconds(0));
            }
        };
        let mut turns = Turns::default();
        assert!(turns.next(&cluster, &registry).is_empty(), "of none");
        let few = named(0..A_ROUND);
        add(&few);
        for _ in 0..2 {
            let next = turns.next(&cluster, &registry);
            assert!(next.iter().eq(&few), "all of a small one, each time");
        }

        let mut all = named(0..1700);
        add(&all);
        let mut seen = BTreeSet::new();
        for _ in 0..all.len().div_ceil(A_ROUND) {
            let next = turns.next(&cluster, &registry);
            assert_eq!(next.len(), A_ROUND);
            seen.extend(next);
        }
        assert_eq!(seen, all);
        // Those that go and come do not keep others from their turn.
        for id in all.extract_if(.., |id| id.as_str().ends_with('0')) {
            assert!(registry.remove_node(&cluster, &id) && !registry.remove_node(&cluster, &id));
        }
        add(&named(1700..1800));
        all.extend(named(1700..1800));
        let round: BTreeSet<_> = (0..4).flat_map(|_| turns.next(&cluster, &registry)).collect();
        assert_eq!(round, all);
        let elsewhere = "hpc-cluster-2".parse().unwrap();
        assert!(turns.next(&elsewhere, &registry).is_empty());
    }

    #[tokio::test]
    async fn who_is_listed_and_who_is_known_are_all_read_when_nodes_are_discovered() {
        let registry = Registry::new("c", "k");
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let named = |n: usize| -> NodeId { format!("node-{n:05}").parse().unwrap() };
        for n in (0..2 * A_ROUND + 7).step_by(2) {
            let view = RelayView {
                node_id: named(n),
                ..view(1)
            };
            registry.set_node(&cluster, view, 1, UnixSeconds(0));
        }
        let listed = (0..2 * A_ROUND + 7).step_by(3).map(named).collect();
        let found = super::all(&registry, &cluster, listed).await;
        let wanted = (0..2 * A_ROUND + 7).filter(|n| n % 2 == 0 || n % 3 == 0);
        assert!(found.into_iter().eq(wanted.map(named)));
    }

    #[tokio::test]
    async fn who_can_be_measured_is_drawn_up_in_order_and_a_silent_node_left_out() {
        let registry = Registry::new("c", "k");
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let named = |n: u32| -> NodeId { format!("node-{n:05}").parse().unwrap() };
        let at = std::net::IpAddr::from([192, 0, 2, 1]);
        for n in 0..700u32 {
            let view = RelayView {
                node_id: named(n),
                ..view(1)
            };
            registry.set_node(&cluster, view, 1, UnixSeconds(0));
            let heard = if n % 5 == 0 { 0 } else { 1_000_000 };
            registry.accepted(Whose::named(&cluster, &named(n)), 1, 2, heard, at);
            let probed = ProbeEndpoint {
                port: (n % 7 != 0).then_some(9000),
                address: None,
                from: at,
            };
            registry.set_probe(&cluster, &named(n), probed);
        }
        registry.refresh_peers(1_000_001).await;
        let neighbours = |most| {
            let around = registry.around(Whose::named(&cluster, &named(0)));
            around.neighbours(&named(0), most, UnixSeconds(0))
        };
        let all = neighbours(u8::MAX);
        assert!(!all.is_empty());
        let numbers = all
            .iter()
            .map(|p| p.node_id.as_str()[5..].parse::<u32>().unwrap());
        assert!(numbers.clone().is_sorted() && numbers.into_iter().all(|n| n % 5 != 0 && n % 7 != 0));
        registry.refresh_peers(2_000_000).await;
        assert!(neighbours(4).is_empty());
    }

    async fn epoch_on_disk(db: &Store) -> Option<i64> {
        let row = db::query("SELECT epoch FROM node")
            .fetch_optional(db.reader())
            .await;
        row.unwrap().map(|r| r.get(0))
    }

    #[tokio::test]
    async fn what_cannot_be_stored_is_not_in_memory_either_and_is_stored_at_the_next_read() {
        let dir = tempfile::tempdir().unwrap();
        let db = Store::open(&dir.path().join("p.db")).await.unwrap();
        let registry = Registry::new("c", "k");
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let id: NodeId = "node-a".parse().unwrap();
        let asked = [id.clone()];
        let read = |nodes: Vec<RelayView>, height| Read {
            cluster: &cluster,
            asked: &asked,
            nodes,
            height,
        };
        let run = async |sql: &'static str| {
            let mut tx = db.begin().await.unwrap();
            db::query(sql).execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
        };
        // The disk refuses, as a full one does.
        const REFUSE: &str =
            "CREATE TRIGGER full BEFORE INSERT ON node BEGIN SELECT RAISE(ABORT, 'full'); END";
        run(REFUSE).await;
        take_in(&db, &registry, read(vec![view(1)], 5), 0)
            .await
            .unwrap_err();
        assert!(registry.node(&cluster, &id).is_none());
        run("DROP TRIGGER full").await;
        take_in(&db, &registry, read(vec![view(1)], 5), 0).await.unwrap();
        assert_eq!(epoch_on_disk(&db).await, Some(1));

        run(REFUSE).await;
        take_in(&db, &registry, read(vec![view(2)], 6), 0)
            .await
            .unwrap_err();
        assert_eq!(registry.node(&cluster, &id).unwrap().chain.epoch, 1);
        run("DROP TRIGGER full").await;
        take_in(&db, &registry, read(vec![view(2)], 6), 0).await.unwrap();
        assert_eq!(epoch_on_disk(&db).await, Some(2));

        run("CREATE TRIGGER full BEFORE DELETE ON node BEGIN SELECT RAISE(ABORT, 'full'); END").await;
        take_in(&db, &registry, read(vec![], 7), 0).await.unwrap_err();
        assert!(registry.node(&cluster, &id).is_some());
        run("DROP TRIGGER full").await;
        take_in(&db, &registry, read(vec![], 8), 0).await.unwrap();
        assert!(registry.node(&cluster, &id).is_none());
        assert_eq!(epoch_on_disk(&db).await, None);
    }
}
