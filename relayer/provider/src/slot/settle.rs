use crate::db::Conn;
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Params, SliceVmReleased, TaskOutcome, TaskResult, TaskType, Topology};

use super::found::{Found, add, candidates};
use super::row::{SlotRow, of_task, put};
use super::state::SlotState;
use crate::store::StoreError;
use crate::task::TaskRow;

/// Puts slots where a node's signed result says that they are; those whose state has changed, as they are now.
///
/// # Errors
/// If the store fails.
pub async fn settle(
    conn: &mut Conn,
    task: &TaskRow,
    result: &TaskResult,
    now_ms: u64,
) -> Result<Vec<SlotRow>, StoreError> {
    let of = (&task.cluster_id, &task.node_id);
    match task.kind {
        TaskType::SliceTopologyDiscover => discovered(conn, of, result, now_ms).await,
        TaskType::SliceVmProvision | TaskType::SliceVmRelease => {
            let mut changed = Vec::new();
            for mut row in of_task(conn, of, &task.task_id).await? {
                judge(&mut row, task, result);
                row.task_id = None;
                row.settled_by = Some(task.task_id.clone());
                row.changed_ms = now_ms;
                put(conn, &row).await?;
                changed.push(row);
            }
            Ok(changed)
        }
        _ => Ok(Vec::new()),
    }
}

async fn discovered(
    conn: &mut Conn,
    of: (&ClusterId, &NodeId),
    result: &TaskResult,
    now_ms: u64,
) -> Result<Vec<SlotRow>, StoreError> {
    if result.outcome != TaskOutcome::Completed {
        return Ok(Vec::new());
    }
    let topology: Topology = match serde_json::from_str(result.result.get()) {
        Ok(topology) => topology,
        Err(e) => {
            tracing::warn!(node = %of.1, "a discovery is not of this version's form: {e}");
            return Ok(Vec::new());
        }
    };
    let mut changed = Vec::new();
    for slot in candidates(topology) {
        let id = slot.slot_id.clone();
        if add(conn, of, slot, now_ms).await? != Found::Same {
            changed.extend(super::row::find(conn, of, &id).await?);
        }
    }
    Ok(changed)
}

/// Where the slot is by this result.
fn judge(row: &mut SlotRow, task: &TaskRow, result: &TaskResult) {
    let params = Params::parse(task.kind, &task.params);
    let done = result.outcome == TaskOutcome::Completed;
    let code = result.code.as_deref();
    let unknown = code == Some(Code::OutcomeUnknown.as_str());
    match (params, done) {
        (Ok(Params::SliceVmProvision(p)), true) => {
            row.state = SlotState::Leased;
            row.allocation_id = Some(p.allocation_id.clone());
            row.vm_name = Some(p.vm_name.clone());
            row.note = None;
        }
        // The node has undone all, its wipe too, and signed that.
        (Ok(Params::SliceVmProvision(_)), false) if !unknown => {
            row.state = SlotState::Free;
            row.note = None;
        }
        (Ok(Params::SliceVmRelease(_)), true) => match lacks(row, result) {
            None => {
                row.state = SlotState::Free;
                row.allocation_id = None;
                row.vm_name = None;
                row.note = None;
            }
            Some(what) => quarantine(row, format!("the cleanup proof lacks {what}")),
        },
        (Ok(Params::SliceVmRelease(_)), false) if unbegun(result) => {
            if row.state == SlotState::Releasing {
                row.state = SlotState::Leased;
            }
        }
        _ => {
            let why = result.detail.as_deref().or(code).unwrap_or("no reason was given");
            let short: String = why.chars().take(256).collect();
            quarantine(row, format!("task {}: {short}", task.task_id));
        }
    }
}

/// What the result does not prove of the slot.
fn lacks(row: &SlotRow, result: &TaskResult) -> Option<String> {
    match serde_json::from_str::<SliceVmReleased>(result.result.get()) {
        Ok(released) if !released.slots.contains(row.slot_id()) => Some("the slot".to_owned()),
        Ok(released) => released.cleanup.lacks(&row.slot),
        Err(_) => Some("the form of this version".to_owned()),
    }
}

/// Whether the node never did anything.
fn unbegun(result: &TaskResult) -> bool {
    result.outcome == TaskOutcome::Expired
        || [Code::PolicyDenied, Code::WrongMode, Code::NotSupported]
            .iter()
            .any(|c| result.code.as_deref() == Some(c.as_str()))
}

fn quarantine(row: &mut SlotRow, why: String) {
    row.state = SlotState::Quarantined;
    row.note = Some(why);
}

/// The same for tasks that ended without the node's word: what it never had is as before, of the rest nobody knows.
pub(super) fn unheard(row: &mut SlotRow, task: &TaskId, had_it: bool) {
    if had_it {
        // Its word may still come; until then, or until somebody takes the slot anew, it is the task's to settle.
        return quarantine(row, format!("the node has not said how task {task} ended"));
    }
    if row.state == SlotState::Releasing {
        row.state = SlotState::Leased;
    }
    row.task_id = None;
}
