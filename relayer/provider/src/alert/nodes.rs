//! What the chain says about nodes, as alerts.

use std::collections::BTreeMap;
use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{NodeState, Prior};
use hpc_schema::registry::Event;

use super::book::{self, Alert, node_key};
use crate::db::Conn;
use crate::events;
use crate::registry::Node;
use crate::store::{Store, StoreError};

/// The state's own alert.
fn of_state(state: NodeState) -> Option<&'static str> {
    match state {
        NodeState::Stale => Some("node_stale"),
        NodeState::Offline => Some("node_offline"),
        NodeState::Deregistered => Some("node_deregistered"),
        NodeState::Pending | NodeState::Active | NodeState::Draining | NodeState::Drained => None,
    }
}

const OF_STATES: [&str; 3] = ["node_stale", "node_offline", "node_deregistered"];
const OF_JOBS: [&str; 2] = ["jobs_at_risk", "jobs_failed"];

/// Raises and resolves what follows from an event of this node; part of the commit that takes it in.
pub(crate) async fn on_event(
    conn: &mut Conn,
    event: &Event,
    (cluster_id, node_id): (&ClusterId, &NodeId),
    now_ms: u64,
) -> Result<(), StoreError> {
    match event {
        Event::Transition {
            from,
            to,
            reason,
            time,
            ..
        } => {
            let at = time.saturating_mul(1_000);
            // A node that was drained may be switched off, and one that its owner removes is no trouble.
            let meant = (*from == Prior(Some(NodeState::Drained)) && *to == NodeState::Offline)
                || (*to == NodeState::Deregistered && reason == "deregistered");
            let wrong = of_state(*to).filter(|_| !meant);
            for name in OF_STATES.into_iter().filter(|n| Some(*n) != wrong) {
                book::resolve(conn, &node_key(name, cluster_id, node_id), at, now_ms).await?;
            }
            if let Some(name) = wrong {
                let summary = format!("node {node_id} of {cluster_id}: {from} → {to} ({reason})");
                let alert = Alert::of_node(name, cluster_id, node_id, summary, at, now_ms);
                book::raise(conn, &alert).await?;
            }
        }
        Event::Jobs { status, time, .. } => {
            let at = time.saturating_mul(1_000);
            let wrong = match status.as_str() {
                "at_risk" => Some("jobs_at_risk"),
                "failed" => Some("jobs_failed"),
                _ => None,
            };
            for name in OF_JOBS.into_iter().filter(|n| Some(*n) != wrong) {
                book::resolve(conn, &node_key(name, cluster_id, node_id), at, now_ms).await?;
            }
            if let Some(name) = wrong {
                let summary = format!("jobs of node {node_id} of {cluster_id}: {status}");
                let alert = Alert::of_node(name, cluster_id, node_id, summary, at, now_ms);
                book::raise(conn, &alert).await?;
            }
        }
        // What was of the registration before, or of the record, is over.
        Event::Registered { time, .. } | Event::Removed { time, .. } => {
            let at = time.saturating_mul(1_000);
            for name in OF_STATES.into_iter().chain(OF_JOBS) {
                book::resolve(conn, &node_key(name, cluster_id, node_id), at, now_ms).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Raises and resolves what the events did not tell: of the time before the store was new. Only of nodes whose record is of a
/// block that has been taken in, and newer than the node's last event.
pub(super) async fn compare(store: &Store, nodes: &[Arc<Node>], now_ms: u64) -> Result<(), StoreError> {
    let Some(followed) = events::followed(store.reader()).await? else {
        return Ok(());
    };
    let mut conn = store.reader().acquire().await?;
    let mut active: BTreeMap<String, Alert> = BTreeMap::new();
    for alert in book::active(&mut conn).await? {
        active.insert(alert.key.clone(), alert);
    }
    drop(conn);
    let mut differs = Vec::new();
    for node in nodes.iter().filter(|n| n.height <= followed) {
        let wrong = of_state(node.chain.recorded_state);
        let has = |name: &str| active.contains_key(&node_key(name, &node.cluster_id, &node.node_id));
        // Whether an absent one was left out on purpose only its event can tell.
        let known = events::last_height(store.reader(), &node.cluster_id, &node.node_id);
        let lacks =
            wrong.is_some_and(|name| name != "node_deregistered" && !has(name)) && node.chain.drain.is_none();
        let too_much = OF_STATES.iter().any(|name| Some(*name) != wrong && has(name));
        if !lacks && !too_much {
            continue;
        }
        match known.await? {
            Some(last) if last > node.height => {}
            Some(_) if !too_much => {}
            _ => differs.push((node, wrong)),
        }
    }
    if differs.is_empty() {
        return Ok(());
    }
    let mut tx = store.begin().await?;
    for (node, wrong) in differs {
        let (cluster, id) = (&node.cluster_id, &node.node_id);
        for name in OF_STATES.into_iter().filter(|n| Some(*n) != wrong) {
            book::resolve(&mut tx, &node_key(name, cluster, id), now_ms, now_ms).await?;
        }
        if let Some(name) = wrong.filter(|name| *name != "node_deregistered") {
            let summary = format!("node {id} of {cluster} is {}", node.chain.recorded_state.as_str());
            let alert = Alert::of_node(name, cluster, id, summary, now_ms, now_ms);
            book::raise(&mut tx, &alert).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}
