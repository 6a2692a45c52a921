use crate::db::Conn;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Params, SliceSlot, SliceVmProvision, SliceVmRelease};

use super::row::{SlotRow, find, holder, list, put};
use super::state::SlotState;
use super::sweep::sweep;
use crate::store::StoreError;

/// Whether a task may have the slots that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It has them, or needs none.
    Yes,
    /// It may not, for this.
    No(String),
}

/// Gives a task that is being submitted the slots that it needs; whoever comes second is refused.
///
/// # Errors
/// If the store fails.
pub async fn claim(
    conn: &mut Conn,
    of: (&ClusterId, &NodeId),
    task: &TaskId,
    params: &Params,
    now_ms: u64,
) -> Result<Claimed, StoreError> {
    let taken = match params {
        Params::SliceVmProvision(p) => {
            sweep(conn, now_ms).await?;
            provision(conn, of, p).await?
        }
        Params::SliceVmRelease(p) => {
            sweep(conn, now_ms).await?;
            release(conn, of, p).await?
        }
        _ => return Ok(Claimed::Yes),
    };
    match taken {
        Err(why) => Ok(Claimed::No(why)),
        Ok(rows) => {
            for mut row in rows {
                if row.state == SlotState::Leased {
                    row.state = SlotState::Releasing;
                }
                row.task_id = Some(task.clone());
                row.changed_ms = now_ms;
                put(conn, &row).await?;
            }
            Ok(Claimed::Yes)
        }
    }
}

async fn provision(
    conn: &mut Conn,
    of: (&ClusterId, &NodeId),
    p: &SliceVmProvision,
) -> Result<Result<Vec<SlotRow>, String>, StoreError> {
    let all = list(conn, Some(of.0), Some(of.1)).await?;
    if let Some(other) = all.iter().find(|s| s.vm_name.as_ref() == Some(&p.vm_name)) {
        return Ok(Err(format!(
            "{} is the machine on slot {}",
            p.vm_name,
            other.slot_id()
        )));
    }
    let mut rows = Vec::new();
    for wanted in &p.slots {
        match named(conn, of, wanted).await? {
            Ok(row) if row.state != SlotState::Free => {
                return Ok(Err(format!("slot {} is {}, not free", wanted.slot_id, row.state)));
            }
            Ok(row) => rows.push(row),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(rows))
}

async fn release(
    conn: &mut Conn,
    of: (&ClusterId, &NodeId),
    p: &SliceVmRelease,
) -> Result<Result<Vec<SlotRow>, String>, StoreError> {
    let mut rows: Vec<SlotRow> = list(conn, Some(of.0), Some(of.1)).await?;
    rows.retain(|s| s.vm_name.as_ref() == Some(&p.vm_name));
    for row in &rows {
        if row.allocation_id.as_ref() != Some(&p.allocation_id) {
            return Ok(Err(format!("slot {} is another allocation's", row.slot_id())));
        }
        if let Some(task) = holder(conn, row).await? {
            return Ok(Err(format!("task {task} works on slot {}", row.slot_id())));
        }
    }
    if !rows.is_empty() && !p.slots.is_empty() {
        return Ok(Err(format!("{} has slots of its own; name none", p.vm_name)));
    }
    for wanted in &p.slots {
        match named(conn, of, wanted).await? {
            Ok(row) if !matches!(row.state, SlotState::Approved | SlotState::Quarantined) => {
                let why = format!(
                    "slot {} is {}; virtengine-provider slot approve",
                    wanted.slot_id, row.state
                );
                return Ok(Err(why));
            }
            Ok(row) => rows.push(row),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(rows))
}

/// The slot on record that is meant; it must be the very one, and nobody's meanwhile.
async fn named(
    conn: &mut Conn,
    of: (&ClusterId, &NodeId),
    wanted: &SliceSlot,
) -> Result<Result<SlotRow, String>, StoreError> {
    let id = &wanted.slot_id;
    let Some(row) = find(conn, of, id).await? else {
        let what = format!("slot {id} is not on record (virtengine-provider slot list)");
        return Ok(Err(what));
    };
    if holder(conn, &row).await?.is_some() {
        return Ok(Err(format!("a task works on slot {id}")));
    }
    if row.slot != *wanted {
        return Ok(Err(format!("slot {id} is on record with other members")));
    }
    Ok(Ok(row))
}
