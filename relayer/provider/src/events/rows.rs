use std::collections::BTreeMap;
use std::sync::Arc;

use hpc_chain::registry::Told;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::registry::Event;
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::db::{self, Conn, Pool};
use crate::registry::Node;
use crate::store::{Store, StoreError, int, opt_uint, text, uint};

/// The last block whose events have been taken in; none before the first.
///
/// # Errors
/// If the store fails.
pub async fn followed(pool: &Pool) -> Result<Option<u64>, StoreError> {
    let row = db::query("SELECT max(height) AS height FROM followed")
        .fetch_one(pool)
        .await?;
    opt_uint(&row, "height")
}

/// Everything up to `height` has been taken in. It never goes back.
pub(super) async fn advance(conn: &mut Conn, height: u64) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO followed (one, height) VALUES (1, ?)
         ON CONFLICT (one) DO UPDATE SET height = excluded.height WHERE excluded.height > followed.height",
    )
    .bind(int(height))
    .execute(conn)
    .await?;
    Ok(())
}

/// Cluster and node that an event is of, if it is of one node ([`Event::of_each_node`]).
pub(super) fn subject(event: &Event) -> Option<(&ClusterId, &NodeId)> {
    match event {
        Event::Transition {
            cluster_id, node_id, ..
        }
        | Event::Jobs {
            cluster_id, node_id, ..
        } => match node_id.0.as_slice() {
            [one] => Some((cluster_id, one)),
            _ => None,
        },
        Event::Registered {
            cluster_id, node_id, ..
        }
        | Event::Drain {
            cluster_id, node_id, ..
        }
        | Event::Resume {
            cluster_id, node_id, ..
        }
        | Event::Removed {
            cluster_id, node_id, ..
        } => Some((cluster_id, node_id)),
        _ => None,
    }
}

/// Records an event of one node; false if it was on record already.
pub(super) async fn record(
    conn: &mut Conn,
    told: &Told,
    event: &Event,
    (cluster, node): (&ClusterId, &NodeId),
    now_ms: u64,
) -> Result<bool, StoreError> {
    let mut json = serde_json::Map::new();
    json.insert("type".into(), event.ty().into());
    for (key, value) in event.attributes() {
        json.insert(key.into(), value.into());
    }
    let done = db::query(
        "INSERT INTO chain_event (height, tx, item, cluster_id, node_id, event, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT DO NOTHING",
    )
    .bind(int(told.height))
    .bind(i64::from(told.tx))
    .bind(i64::from(told.item))
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(serde_json::Value::Object(json).to_string())
    .bind(int(now_ms))
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Keeps since when a node is deregistered.
pub(super) async fn note_deregistration(
    conn: &mut Conn,
    event: &Event,
    (cluster, node): (&ClusterId, &NodeId),
) -> Result<(), StoreError> {
    let time = match event {
        Event::Transition {
            to: NodeState::Deregistered,
            time,
            ..
        } => time,
        Event::Registered { .. } | Event::Removed { .. } => {
            return forget_deregistration(conn, cluster, node).await;
        }
        _ => return Ok(()),
    };
    // The epoch is not told: the first look at the node adds it.
    db::query(
        "INSERT INTO deregistered (cluster_id, node_id, epoch, at_s) VALUES (?, ?, 0, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET epoch = excluded.epoch, at_s = excluded.at_s",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(*time))
    .execute(conn)
    .await?;
    Ok(())
}

async fn forget_deregistration(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<(), StoreError> {
    db::query("DELETE FROM deregistered WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .execute(conn)
        .await?;
    Ok(())
}

/// Since when each of these nodes that is deregistered is so: by its event, or since it was first looked at (`now`).
///
/// # Errors
/// If the store fails.
pub async fn deregistered(
    store: &Store,
    nodes: &[Arc<Node>],
    now: UnixSeconds,
) -> Result<Vec<UnixSeconds>, StoreError> {
    let of = |n: &Arc<Node>| ((n.cluster_id.clone(), n.node_id.clone()), n.chain.epoch);
    let mut wanted: BTreeMap<_, _> = nodes.iter().filter(|n| n.is_deregistered()).map(of).collect();
    let rows = db::query("SELECT * FROM deregistered")
        .fetch_all(store.reader())
        .await?;
    if rows.is_empty() && wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin().await?;
    let mut since = Vec::new();
    for row in &rows {
        let (cluster, node): (ClusterId, NodeId) = (text(row, "cluster_id")?, text(row, "node_id")?);
        let (epoch, at) = (uint(row, "epoch")?, uint(row, "at_s")?);
        let key = (cluster, node);
        match wanted.get(&key) {
            Some(now_epoch) if epoch == 0 || epoch == *now_epoch => {
                since.push(UnixSeconds(at));
                db::query(
                    "UPDATE deregistered SET epoch = ? WHERE cluster_id = ? AND node_id = ? AND epoch = 0",
                )
                .bind(int(*now_epoch))
                .bind(key.0.as_str())
                .bind(key.1.as_str())
                .execute(&mut *tx)
                .await?;
                wanted.remove(&key);
            }
            // Not read yet, or registered again.
            _ if epoch == 0 => {}
            _ => forget_deregistration(&mut tx, &key.0, &key.1).await?,
        }
    }
    for ((cluster, node), epoch) in wanted {
        db::query(
            "INSERT INTO deregistered (cluster_id, node_id, epoch, at_s) VALUES (?, ?, ?, ?)
             ON CONFLICT (cluster_id, node_id) DO UPDATE SET epoch = excluded.epoch, at_s = excluded.at_s",
        )
        .bind(cluster.as_str())
        .bind(node.as_str())
        .bind(int(epoch))
        .bind(int(now.0))
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(since)
}

/// An event of a node, as the contract told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeEvent {
    /// Block.
    pub height: u64,
    /// Its type and attributes, all of them text.
    #[schemars(with = "BTreeMap<String, String>")]
    pub event: serde_json::Value,
}

/// The newest events of a node, newest first.
///
/// # Errors
/// If the store fails.
pub async fn events_of(
    pool: &Pool,
    cluster: &ClusterId,
    node: &NodeId,
    limit: u32,
) -> Result<Vec<NodeEvent>, StoreError> {
    let rows = db::query(
        "SELECT height, event FROM chain_event WHERE cluster_id = ? AND node_id = ?
         ORDER BY height DESC, tx DESC, item DESC LIMIT ?",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| {
            let text: String = row.try_get("event")?;
            let event = serde_json::from_str(&text).map_err(|_| StoreError::Value {
                table: "chain_event",
                column: "event",
            })?;
            Ok(NodeEvent {
                height: uint(row, "height")?,
                event,
            })
        })
        .collect()
}

/// The block of a node's newest event on record.
///
/// # Errors
/// If the store fails.
pub async fn last_height(pool: &Pool, cluster: &ClusterId, node: &NodeId) -> Result<Option<u64>, StoreError> {
    let row = db::query("SELECT max(height) AS height FROM chain_event WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .fetch_one(pool)
        .await?;
    opt_uint(&row, "height")
}

/// Forgets events that were taken in before `before_ms`, a bounded number at a time.
///
/// # Errors
/// If the store fails.
pub async fn prune(conn: &mut Conn, before_ms: u64) -> Result<(), StoreError> {
    db::query(
        "DELETE FROM chain_event WHERE (height, tx, item) IN
           (SELECT height, tx, item FROM chain_event WHERE seen_at < ? LIMIT 10000)",
    )
    .bind(int(before_ms))
    .execute(conn)
    .await?;
    Ok(())
}
