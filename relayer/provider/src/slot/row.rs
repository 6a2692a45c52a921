use crate::db::{self, Conn, Pool, Row};
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{AllocationId, SliceSlot, SlotId, VmId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::state::SlotState;
use crate::page::{Page, Window};
use crate::store::{StoreError, int, text, uint};
use crate::task;

/// A slot on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotRow {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// Where it is in its life.
    pub state: SlotState,
    /// Its devices and its size, as tasks name them.
    pub slot: SliceSlot,
    /// What the tenant was given whose machine has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<AllocationId>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_name: Option<VmId>,
    /// The task that works on it, or whose word of how it ended has not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The task whose signed result put it into its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<TaskId>,
    /// Why it is where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// UNIX milliseconds at which it was found.
    pub found_ms: u64,
    /// UNIX milliseconds of its last change.
    pub changed_ms: u64,
}

impl SlotRow {
    /// Its id.
    #[must_use]
    pub fn slot_id(&self) -> &SlotId {
        &self.slot.slot_id
    }

    fn read(row: &Row) -> Result<Self, StoreError> {
        let slot: String = row.try_get("slot")?;
        let slot = serde_json::from_str(&slot).map_err(|_| StoreError::Value {
            table: "slot",
            column: "slot",
        })?;
        Ok(Self {
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            state: text(row, "state")?,
            slot,
            allocation_id: optional(row, "allocation_id")?,
            vm_name: optional(row, "vm_name")?,
            task_id: optional(row, "task_id")?,
            settled_by: optional(row, "settled_by")?,
            note: row.try_get("note")?,
            found_ms: uint(row, "found_ms")?,
            changed_ms: uint(row, "changed_ms")?,
        })
    }
}

fn optional<T: std::str::FromStr>(row: &Row, column: &'static str) -> Result<Option<T>, StoreError> {
    let s: Option<String> = row.try_get(column)?;
    let bad = |_| StoreError::Value {
        table: "slot",
        column,
    };
    s.map(|s| s.parse().map_err(bad)).transpose()
}

/// Slots in the order of nodes and places; of a cluster, a node, or all.
///
/// # Errors
/// If the store fails.
pub async fn list(
    conn: &mut Conn,
    cluster: Option<&ClusterId>,
    node: Option<&NodeId>,
) -> Result<Vec<SlotRow>, StoreError> {
    // An empty text stands for any: a parameter that is only compared with NULL has no type everywhere.
    let rows = db::query(
        "SELECT * FROM slot WHERE (?1 = '' OR cluster_id = ?1) AND (?2 = '' OR node_id = ?2)
         ORDER BY cluster_id, node_id, slot_id",
    )
    .bind(cluster.map_or("", ClusterId::as_str))
    .bind(node.map_or("", NodeId::as_str))
    .fetch_all(conn)
    .await?;
    let mut all = rows.iter().map(SlotRow::read).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|a, b| {
        let place = |r: &SlotRow| (r.cluster_id.clone(), r.node_id.clone(), r.slot.slot_index);
        place(a).cmp(&place(b))
    });
    Ok(all)
}

/// Slots in the order of their ids: of a cluster, a node, in a state, or all.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn page(
    pool: &Pool,
    of: (Option<&ClusterId>, Option<&NodeId>),
    state: Option<SlotState>,
    window: Window<'_>,
) -> Result<Page<SlotRow>, StoreError> {
    let [cluster, node, slot] = window.texts::<3>()?;
    let mut sql = "SELECT * FROM slot WHERE (cluster_id, node_id, slot_id) > (?, ?, ?)".to_owned();
    let wanted = [
        (" AND cluster_id = ?", of.0.map(ClusterId::as_str)),
        (" AND node_id = ?", of.1.map(NodeId::as_str)),
        (" AND state = ?", state.map(SlotState::as_str)),
    ];
    for (condition, _) in wanted.iter().filter(|(_, value)| value.is_some()) {
        sql.push_str(condition);
    }
    sql.push_str(" ORDER BY cluster_id, node_id, slot_id LIMIT ?");
    let mut query = db::query(sql).bind(cluster).bind(node).bind(slot);
    for value in wanted.into_iter().filter_map(|(_, value)| value) {
        query = query.bind(value);
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(SlotRow::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |s: &SlotRow| {
        format!("{}/{}/{}", s.cluster_id, s.node_id, s.slot_id())
    }))
}

/// One slot.
///
/// # Errors
/// If the store fails.
pub async fn find(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    id: &SlotId,
) -> Result<Option<SlotRow>, StoreError> {
    let row = db::query("SELECT * FROM slot WHERE cluster_id = ?1 AND node_id = ?2 AND slot_id = ?3")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(SlotRow::read).transpose()
}

/// Slots that a task works on.
///
/// # Errors
/// If the store fails.
pub(super) async fn of_task(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    task: &TaskId,
) -> Result<Vec<SlotRow>, StoreError> {
    let mut all = list(conn, Some(cluster), Some(node)).await?;
    all.retain(|s| s.task_id.as_ref() == Some(task));
    Ok(all)
}

/// The task that has the slot. One that has ended, or is on record no more, has a quarantined slot no longer: its word
/// would still be taken, but nobody need wait for it.
///
/// # Errors
/// If the store fails.
pub async fn holder(conn: &mut Conn, row: &SlotRow) -> Result<Option<TaskId>, StoreError> {
    let Some(id) = &row.task_id else { return Ok(None) };
    if row.state != SlotState::Quarantined {
        return Ok(Some(id.clone()));
    }
    let task = task::find(conn, Some(&row.cluster_id), id).await?.pop();
    Ok(task.filter(|t| !t.state.is_end()).map(|t| t.task_id))
}

/// Writes a slot as it is now, new or not.
///
/// # Errors
/// If the store fails.
pub async fn put(conn: &mut Conn, row: &SlotRow) -> Result<(), StoreError> {
    let slot = serde_json::to_string(&row.slot).map_err(std::io::Error::from)?;
    db::query(
        "INSERT INTO slot (cluster_id, node_id, slot_id, state, slot, allocation_id, vm_name, task_id, settled_by,
             note, found_ms, changed_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (cluster_id, node_id, slot_id) DO UPDATE SET state = excluded.state, slot = excluded.slot,
             allocation_id = excluded.allocation_id, vm_name = excluded.vm_name, task_id = excluded.task_id,
             settled_by = excluded.settled_by, note = excluded.note, changed_ms = excluded.changed_ms",
    )
    .bind(row.cluster_id.as_str())
    .bind(row.node_id.as_str())
    .bind(row.slot.slot_id.as_str())
    .bind(row.state.as_str())
    .bind(slot)
    .bind(row.allocation_id.as_ref().map(AllocationId::as_str))
    .bind(row.vm_name.as_ref().map(VmId::as_str))
    .bind(row.task_id.as_ref().map(TaskId::as_str))
    .bind(row.settled_by.as_ref().map(TaskId::as_str))
    .bind(&row.note)
    .bind(int(row.found_ms))
    .bind(int(row.changed_ms))
    .execute(conn)
    .await?;
    Ok(())
}
