use std::sync::{Arc, LazyLock};

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::node::NodeState;
use hpc_schema::registry::{Cluster, Drain, Params, RelayView};
use hpc_schema::time::UnixSeconds;

use super::contacts;
use super::node::{Contact, Node};
use super::view::Registry;
use crate::db::many::{self, Sized};
use crate::db::{self, Conn, Pool, Row};
use crate::spool;
use crate::store::{Store, StoreError, bytes, int, opt_uint, sequence, text, uint};

fn bad(table: &'static str, column: &'static str) -> StoreError {
    StoreError::Value { table, column }
}

/// Fills an empty registry from the disk.
///
/// # Errors
/// If the store fails.
pub async fn load(store: &Store, registry: &Registry, now: UnixSeconds) -> Result<(), StoreError> {
    let row = db::query("SELECT params FROM binding")
        .fetch_optional(store.reader())
        .await?;
    if let Some(text) = row
        .map(|r| r.try_get::<Option<String>, _>(0))
        .transpose()?
        .flatten()
    {
        registry.set_params(serde_json::from_str::<Params>(&text).map_err(|_| bad("binding", "params"))?);
    }
    for row in db::query("SELECT record FROM cluster")
        .fetch_all(store.reader())
        .await?
    {
        let text: String = row.try_get(0)?;
        registry.set_cluster(serde_json::from_str::<Cluster>(&text).map_err(|_| bad("cluster", "record"))?);
    }
    for node in known(store.reader()).await? {
        registry.set_node(&node.cluster_id, node.chain, node.height, now);
        registry.set_contact(&node.cluster_id, &node.node_id, node.contact);
    }
    for intake in spool::intakes(store.reader()).await? {
        registry.set_intake(&intake);
    }
    // What was just read needs no writing.
    drop(registry.take_dirty());
    Ok(())
}

/// A node as stored.
#[derive(Debug, Clone)]
pub struct Known {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// The chain's record as last read.
    pub chain: RelayView,
    /// At which height.
    pub height: u64,
    /// What the gateway knows beside it.
    pub contact: Contact,
}

/// What [`read`] reads, of [`TABLES`].
pub(super) const COLUMNS: &str =
    "n.*, c.address, c.probe_port, c.probe_address, c.order_kind, c.order_id, c.order_at_s,
     c.order_until_s, c.refusal_code, c.refusal_at";
/// Nodes, with what the gateways know beside the chain.
pub(super) const TABLES: &str =
    "node n LEFT JOIN contact c ON c.cluster_id = n.cluster_id AND c.node_id = n.node_id";

/// Every node on record, in order of cluster and id.
///
/// # Errors
/// If the store fails.
pub async fn known(pool: &Pool) -> Result<Vec<Known>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM {TABLES} ORDER BY n.cluster_id, n.node_id");
    let rows = db::query(sql).fetch_all(pool).await?;
    rows.iter().map(read).collect()
}

/// The owner of a cluster, if the chain has been asked.
///
/// # Errors
/// If the store fails.
pub async fn cluster_owner(pool: &Pool, cluster: &ClusterId) -> Result<Option<String>, StoreError> {
    let row = db::query("SELECT record FROM cluster WHERE cluster_id = ?")
        .bind(cluster.as_str())
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let text: String = row.try_get(0)?;
    let cluster: Cluster = serde_json::from_str(&text).map_err(|_| bad("cluster", "record"))?;
    Ok(Some(cluster.owner))
}

pub(super) fn read(row: &Row) -> Result<Known, StoreError> {
    let state = |column: &'static str| -> Result<NodeState, StoreError> {
        let n = u8::try_from(uint(row, column)?).map_err(|_| bad("node", column))?;
        NodeState::from_number(n).ok_or(bad("node", column))
    };
    let drain: Option<String> = row.try_get("drain")?;
    let drain: Option<Drain> = drain
        .map(|d| serde_json::from_str(&d))
        .transpose()
        .map_err(|_| bad("node", "drain"))?;
    let node_id: NodeId = text(row, "node_id")?;
    let chain = RelayView {
        node_id: node_id.clone(),
        page: u16::try_from(uint(row, "page")?).map_err(|_| bad("node", "page"))?,
        slot: u8::try_from(uint(row, "slot")?).map_err(|_| bad("node", "slot"))?,
        epoch: uint(row, "epoch")?,
        sequence: sequence(row, "settled_sequence")?,
        agent_pubkey: AgentKey::from_bytes(bytes(row, "public_key")?)
            .map_err(|_| bad("node", "public_key"))?,
        section_digest: hex::encode(bytes::<16>(row, "section_digest")?),
        recorded_state: state("recorded_state")?,
        state: state("state")?,
        last_heartbeat: UnixSeconds(uint(row, "last_heartbeat_s")?),
        offline_since: opt_uint(row, "offline_since_s")?.map(UnixSeconds),
        drain,
    };
    Ok(Known {
        cluster_id: text(row, "cluster_id")?,
        node_id,
        chain,
        height: uint(row, "height")?,
        contact: contacts::read(row)?,
    })
}

pub(super) async fn save_params(conn: &mut Conn, params: &Params) -> Result<(), StoreError> {
    let text = serde_json::to_string(params).map_err(|_| bad("binding", "params"))?;
    db::query("UPDATE binding SET params = ?1 WHERE params IS DISTINCT FROM ?1")
        .bind(text)
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn save_cluster(conn: &mut Conn, cluster: &Cluster) -> Result<(), StoreError> {
    let text = serde_json::to_string(cluster).map_err(|_| bad("cluster", "record"))?;
    db::query(
        "INSERT INTO cluster (cluster_id, record) VALUES (?, ?)
         ON CONFLICT (cluster_id) DO UPDATE SET record = excluded.record WHERE cluster.record <> excluded.record",
    )
    .bind(cluster.cluster_id.as_str())
    .bind(text)
    .execute(conn)
    .await?;
    Ok(())
}

static SAVE_NODES: LazyLock<Vec<Sized>> = LazyLock::new(|| {
    many::sized(|rows| {
        format!(
            "INSERT INTO node (cluster_id, node_id, epoch, public_key, page, slot, settled_sequence,
             section_digest, recorded_state, state, last_heartbeat_s, offline_since_s, drain, height)
             VALUES {}
             ON CONFLICT (cluster_id, node_id) DO UPDATE SET epoch = excluded.epoch, public_key = excluded.public_key,
               page = excluded.page, slot = excluded.slot, settled_sequence = excluded.settled_sequence,
               section_digest = excluded.section_digest, recorded_state = excluded.recorded_state,
               state = excluded.state, last_heartbeat_s = excluded.last_heartbeat_s,
               offline_since_s = excluded.offline_since_s, drain = excluded.drain, height = excluded.height
             WHERE excluded.height >= node.height",
            many::joined(rows, "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ", ")
        )
    })
});

/// Nodes as read from the chain, each once. After a transaction they are hundreds, and acceptance waits while this writes.
pub(super) async fn save_nodes(conn: &mut Conn, nodes: &[Arc<Node>]) -> Result<(), StoreError> {
    for (some, statement) in many::split(nodes, &SAVE_NODES) {
        let mut query = db::query(statement);
        for node in some {
            let c = &node.chain;
            let drain = c
                .drain
                .as_ref()
                .map(serde_json::to_string)
                .transpose()
                .map_err(|_| bad("node", "drain"))?;
            query = query
                .bind(node.cluster_id.as_str())
                .bind(node.node_id.as_str())
                .bind(int(c.epoch))
                .bind(c.agent_pubkey.as_bytes().as_slice())
                .bind(i64::from(c.page))
                .bind(i64::from(c.slot))
                .bind(i64::from(c.sequence))
                .bind(node.section_digest.as_slice())
                .bind(i64::from(c.recorded_state.number()))
                .bind(i64::from(c.state.number()))
                .bind(int(c.last_heartbeat.0))
                .bind(c.offline_since.map(|t| int(t.0)))
                .bind(drain)
                .bind(int(node.height));
        }
        query.execute(&mut *conn).await?;
    }
    Ok(())
}

pub(super) async fn delete_node(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<(), StoreError> {
    db::query("DELETE FROM node WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .execute(conn)
        .await?;
    Ok(())
}
