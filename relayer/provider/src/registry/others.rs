//! What other gateways on the same store have read from the chain, settled or accepted.

use std::sync::Arc;

use hpc_schema::time::UnixSeconds;

use super::node::Node;
use super::store::{COLUMNS, TABLES, read};
use super::view::Registry;
use crate::db;
use crate::spool;
use crate::store::{Store, StoreError};

/// Nodes taken in at once.
const AT_ONCE: i64 = 10_000;

/// How far this gateway has followed the others.
#[derive(Debug, Default)]
pub struct Mark(i64);

/// Takes in what has changed since the last call; nothing where the store is this gateway's alone.
///
/// # Errors
/// If the store fails; the next call goes on from where this one stopped.
pub async fn catch_up(
    store: &Store,
    registry: &Registry,
    mark: &mut Mark,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    if !store.is_shared() {
        return Ok(());
    }
    let from = mark.0;
    let nodes = db::query(format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE n.changed > ? ORDER BY n.changed LIMIT ?"
    ))
    .bind(from)
    .bind(AT_ONCE)
    .fetch_all(store.reader())
    .await?;
    let mut reached = from;
    for row in &nodes {
        let node = read(row)?;
        let unknown = registry.node(&node.cluster_id, &node.node_id).is_none();
        registry.set_node(&node.cluster_id, node.chain, node.height, now);
        if unknown {
            registry.set_contact(&node.cluster_id, &node.node_id, node.contact);
        } else {
            // It may have registered anew there.
            registry.take_probe(&node.cluster_id, &node.node_id, &node.contact);
        }
        reached = reached.max(row.try_get("changed")?);
    }
    // The numbers are of one sequence: with nodes left over, refusals wait for them.
    let most = if nodes.len() < usize::try_from(AT_ONCE).unwrap_or(usize::MAX) {
        i64::MAX
    } else {
        reached
    };
    let refused = db::query("SELECT * FROM intake WHERE changed > ? AND changed <= ? ORDER BY changed")
        .bind(from)
        .bind(most)
        .fetch_all(store.reader())
        .await?;
    for row in &refused {
        reached = reached.max(row.try_get("changed")?);
        match spool::Intake::read(row) {
            Ok(intake) => {
                if let Some((code, sequence)) = intake.refusal {
                    registry.refused(&intake.cluster_id, &intake.node_id, code, sequence);
                }
            }
            // It keeps nobody from settling; the node's next report has it written anew.
            Err(e) if e.is_unreadable() => {}
            Err(e) => return Err(e),
        }
    }
    mark.0 = reached;
    Ok(())
}

/// Takes in of which nodes other gateways have accepted heartbeats; nothing where the store is this gateway's alone.
///
/// # Errors
/// If the store fails.
pub async fn heard_elsewhere(store: &Store, registry: &Registry) -> Result<(), StoreError> {
    if !store.is_shared() {
        return Ok(());
    }
    for intake in spool::intakes(store.reader()).await? {
        registry.set_intake(&intake);
    }
    Ok(())
}

/// Takes in what has been accepted of one node, by whatever gateway on this store; the node as it is known then, if that is
/// above what `before` says. A record of another registration than the one that is known says nothing.
///
/// # Errors
/// If the store fails, or the row cannot be read.
pub async fn heard_of(
    store: &Store,
    registry: &Registry,
    before: &Node,
) -> Result<Option<Arc<Node>>, StoreError> {
    let (cluster, id) = (&before.cluster_id, &before.node_id);
    if let Some(intake) = spool::intake_of(store.reader(), cluster, id).await? {
        registry.set_intake(&intake);
    }
    let now = registry.node(cluster, id);
    Ok(now.filter(|now| now.chain.epoch == before.chain.epoch && now.floor() > before.floor()))
}

#[cfg(test)]
mod tests {
    use super::super::scene;
    use super::*;
    use crate::spool::{Accept, Spool};

    #[tokio::test]
    async fn what_another_gateway_has_accepted_of_a_node_is_known_once_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        let (cluster, at) = ("hpc-cluster-1".parse().unwrap(), UnixSeconds(1_000));
        let registry = Registry::new("chain-1", "contract");
        registry.set_node(&cluster, scene::view(), 5, at).unwrap();
        let before = || registry.node(&cluster, &scene::view().node_id).unwrap();
        assert!(heard_of(&store, &registry, &before()).await.unwrap().is_none());
        // The other gateway's writer.
        let (spool, writer) = Spool::start(store.clone(), None, Arc::default());
        let report = |epoch, sequence| {
            let of = (cluster.clone(), scene::view().node_id);
            Accept::new(of, (epoch, sequence), ([1; 70], [2; 64]), 1)
        };
        assert!(spool.accept(report(1, 7)).await.unwrap().accepted);
        let now = heard_of(&store, &registry, &before()).await.unwrap();
        assert_eq!(now.map(|n| (n.acked, n.floor())), Some((7, 7)));
        assert_eq!(before().acked, 7);
        assert!(heard_of(&store, &registry, &before()).await.unwrap().is_none());
        // Of a registration that is not known here yet: its numbers begin anew.
        assert!(spool.accept(report(2, 900)).await.unwrap().accepted);
        assert!(heard_of(&store, &registry, &before()).await.unwrap().is_none());
        assert_eq!(before().acked, 7);
        drop(spool);
        writer.await.unwrap();
    }
}
