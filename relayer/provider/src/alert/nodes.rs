//! What the chain says about nodes, as alerts.

use std::collections::BTreeMap;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{NodeState, Prior};
use hpc_schema::registry::Event;

use super::book::{self, Alert, node_key};
use crate::db::Conn;
use crate::events;
use crate::registry::{Node, Registry};
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
pub(super) async fn compare(store: &Store, registry: &Registry, now_ms: u64) -> Result<(), StoreError> {
    let Some(followed) = events::followed(store.reader()).await? else {
        return Ok(());
    };
    let mut conn = store.reader().acquire().await?;
    let active = book::active(&mut conn).await?;
    drop(conn);
    let mut by_node: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for alert in &active {
        let names = by_node.entry((&alert.cluster, &alert.node)).or_default();
        names.push(&alert.name);
    }
    let has = |node: &Node, name: &str| {
        let names = by_node.get(&(node.cluster_id.as_str(), node.node_id.as_str()));
        names.is_some_and(|names| names.contains(&name))
    };
    let lacks = |node: &Node| {
        let wrong = of_state(node.chain.recorded_state);
        wrong.is_some_and(|name| name != "node_deregistered" && !has(node, name))
            && node.chain.drain.is_none()
    };
    let has_too_much = |node: &Node| {
        let wrong = of_state(node.chain.recorded_state);
        OF_STATES
            .iter()
            .any(|name| Some(*name) != wrong && has(node, name))
    };
    let doubtful = registry
        .those(|n| n.height <= followed && (lacks(n) || has_too_much(n)))
        .await;
    let mut differs = Vec::new();
    for node in &doubtful {
        let (wrong, too_much) = (of_state(node.chain.recorded_state), has_too_much(node));
        // Whether an absent one was left out on purpose only its event can tell.
        match events::last_height(store.reader(), &node.cluster_id, &node.node_id).await? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db;

    /// What the contract says of one node at some time.
    enum Say {
        /// An arrow, with its reason.
        Arrow(Option<NodeState>, NodeState, &'static str),
        /// The standing of its jobs.
        Jobs(&'static str),
        /// A registration.
        Registered,
        /// The record is gone.
        Removed,
        /// The owner's order.
        Drain,
    }

    fn event(say: &Say, (cluster, node): (&ClusterId, &NodeId), time: u64) -> Event {
        let cluster_id = cluster.clone();
        match say {
            Say::Arrow(from, to, reason) => Event::Transition {
                cluster_id,
                node_id: node.clone().into(),
                from: Prior(*from),
                to: *to,
                reason: (*reason).to_owned(),
                time,
            },
            Say::Jobs(status) => Event::Jobs {
                cluster_id,
                node_id: node.clone().into(),
                status: (*status).to_owned(),
                time,
            },
            Say::Registered => Event::Registered {
                cluster_id,
                node_id: node.clone(),
                epoch: 2,
                page: 0,
                slot: 0,
                kind: "renewed".to_owned(),
                time,
            },
            Say::Removed => Event::Removed {
                cluster_id,
                node_id: node.clone(),
                epoch: 1,
                time,
            },
            Say::Drain => Event::Drain {
                cluster_id,
                node_id: node.clone(),
                ordered_by: "wasm1owner".to_owned(),
                until: time,
            },
        }
    }

    #[tokio::test]
    async fn each_arrow_raises_what_it_means_and_ends_what_is_over() {
        use NodeState::{Active, Deregistered, Drained, Draining, Offline, Pending, Stale};
        use Say::{Arrow, Drain, Jobs, Registered, Removed};

        let stale = || Arrow(Some(Active), Stale, "silence");
        let offline = || Arrow(Some(Stale), Offline, "silence");
        let gone = || Arrow(Some(Offline), Deregistered, "silence");
        let back = |from| Arrow(Some(from), Active, "recovered");
        let (at_risk, failed, normal) = (|| Jobs("at_risk"), || Jobs("failed"), || Jobs("normal"));
        // Of each node what is said of it, and what goes on after each.
        let all: Vec<Vec<(Say, &str)>> = vec![
            // One that comes up, is drained and resumed: nothing is wrong.
            vec![
                (Registered, ""),
                (Arrow(None, Pending, "registered"), ""),
                (Arrow(Some(Pending), Active, "heartbeat"), ""),
                (Drain, ""),
                (Arrow(Some(Active), Draining, "provider"), ""),
                (Arrow(Some(Draining), Drained, "jobs_done"), ""),
                (Arrow(Some(Drained), Active, "provider"), ""),
            ],
            // Silent for a while, without jobs and with.
            vec![(stale(), "node_stale"), (back(Stale), "")],
            vec![
                (stale(), "node_stale"),
                (offline(), "node_offline"),
                (back(Offline), ""),
            ],
            vec![
                (stale(), "node_stale"),
                (offline(), "node_offline"),
                (at_risk(), "jobs_at_risk node_offline"),
                (back(Offline), "jobs_at_risk"),
                (normal(), ""),
            ],
            // For good; a registration ends it, or the end of the record.
            vec![
                (offline(), "node_offline"),
                (at_risk(), "jobs_at_risk node_offline"),
                (gone(), "jobs_at_risk node_deregistered"),
                (failed(), "jobs_failed node_deregistered"),
                (Registered, ""),
            ],
            vec![
                (offline(), "node_offline"),
                (gone(), "node_deregistered"),
                (failed(), "jobs_failed node_deregistered"),
                (Removed, ""),
            ],
            vec![
                (gone(), "node_deregistered"),
                (Arrow(Some(Deregistered), Pending, "registered"), ""),
            ],
            // Drained and switched off on purpose; what it still runs is at risk all the same.
            vec![(Arrow(Some(Drained), Offline, "silence"), "")],
            vec![
                (stale(), "node_stale"),
                (Arrow(Some(Drained), Offline, "silence"), ""),
            ],
            vec![
                (Arrow(Some(Draining), Offline, "silence"), "node_offline"),
                (at_risk(), "jobs_at_risk node_offline"),
            ],
            // Removed by its owner, in whatever state.
            vec![(Arrow(Some(Active), Deregistered, "deregistered"), "")],
            vec![
                (offline(), "node_offline"),
                (Arrow(Some(Offline), Deregistered, "deregistered"), ""),
            ],
        ];
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let other: NodeId = "node-other".parse().unwrap();
        for (number, says) in all.iter().enumerate() {
            let node: NodeId = format!("node-{number:04}").parse().unwrap();
            for (step, (say, wanted)) in (1u64..).zip(says) {
                let mut tx = store.begin().await.unwrap();
                let event = event(say, (&cluster, &node), step);
                // Told again, as after a crash: it changes nothing.
                for _ in 0..2 {
                    on_event(&mut tx, &event, (&cluster, &node), step * 1_000)
                        .await
                        .unwrap();
                }
                tx.commit().await.unwrap();
                let rows =
                    db::query("SELECT * FROM alert WHERE node_id = ? AND ended_at IS NULL ORDER BY name")
                        .bind(node.as_str())
                        .fetch_all(store.reader())
                        .await
                        .unwrap();
                let active: Vec<Alert> = rows.iter().map(|r| Alert::read(r).unwrap()).collect();
                let names: Vec<&str> = active.iter().map(|a| a.name.as_str()).collect();
                assert_eq!(names.join(" "), *wanted, "node {number}, step {step}");
                for alert in active {
                    assert_eq!(alert.key, node_key(&alert.name, &cluster, &node));
                    let severity = if alert.name == "node_stale" {
                        "warning"
                    } else {
                        "critical"
                    };
                    assert_eq!(alert.severity, severity);
                    assert!(alert.started_at >= 1_000 && alert.started_at <= step * 1_000);
                }
            }
        }
        // Nobody else's is touched.
        let alert = Alert::of_node("node_stale", &cluster, &other, String::new(), 1_000, 1_000);
        let mut tx = store.begin().await.unwrap();
        book::raise(&mut tx, &alert).await.unwrap();
        let node: NodeId = "node-0001".parse().unwrap();
        let event = event(&back(Stale), (&cluster, &node), 9);
        on_event(&mut tx, &event, (&cluster, &node), 9_000).await.unwrap();
        tx.commit().await.unwrap();
        let mut conn = store.reader().acquire().await.unwrap();
        let active = book::active(&mut conn).await.unwrap();
        assert!(active.iter().any(|a| a.key == alert.key));
    }
}
