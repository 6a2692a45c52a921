use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::task::{SliceSlot, SlotId, TaskType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use super::submit::Submission;
use crate::audit::Actor;
use crate::clock;
use crate::control;
use crate::page::{Page, Window};
use crate::slot::{self, Found, SlotRow, SlotState};

/// The first wipe must be begun by then.
const WIPE_WITHIN_SECONDS: u64 = 24 * 3600;

/// A slot of a node.
#[derive(Debug, Clone, Copy)]
pub struct WhichSlot<'a> {
    /// The node.
    pub node_id: &'a NodeId,
    /// Its cluster, if several have a node of this id.
    pub cluster_id: Option<&'a ClusterId>,
    /// The slot.
    pub slot_id: &'a SlotId,
}

/// Of which size machines on a slot are; absent: as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlotSize {
    /// Virtual CPUs.
    pub vcpu_count: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: Option<u32>,
}

/// An approved slot.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovedSlot {
    /// As it is now.
    pub slot: SlotRow,
    /// The task that wipes it: it is free once that is completed with proof.
    pub task_id: String,
}

impl Admin {
    /// Slots, in the order of nodes and ids.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn slots(
        &self,
        cluster: Option<&ClusterId>,
        node: Option<&NodeId>,
        state: Option<SlotState>,
        window: Window<'_>,
    ) -> Result<Page<SlotRow>, AdminError> {
        Ok(slot::page(self.store.reader(), (cluster, node), state, window).await?)
    }

    /// Puts a slot on record as a candidate that discovery does not find: one without a GPU.
    ///
    /// # Errors
    /// If there is no such node, or the slot is another one already.
    pub async fn add_slot(
        &self,
        by: &Actor,
        node: &NodeId,
        cluster: Option<&ClusterId>,
        wanted: SliceSlot,
    ) -> Result<SlotRow, AdminError> {
        let target = format!("slot {node}/{}", wanted.slot_id);
        let mut act = Act::begin(&self.store, by, "slot.add", target).await?;
        let detail = json!({ "slot": wanted });
        let done = async {
            wanted
                .check()
                .map_err(|(member, what)| AdminError::field(Code::InvalidField, member, what))?;
            let cluster = self.cluster_of(&mut act, node, cluster).await?;
            let id = wanted.slot_id.clone();
            let found = slot::add(act.conn(), (&cluster, node), wanted, clock::now_ms()).await?;
            if found == Found::Differs {
                let text = format!("{id} is past being a candidate, with other members; retire it");
                return Err(AdminError::field(Code::InvalidState, "slot_id", text));
            }
            slot::find(act.conn(), (&cluster, node), &id)
                .await?
                .ok_or_else(|| missing(&id))
        };
        let done = done.await;
        act.end(done, detail).await
    }

    /// Approves a slot on which no machine is, and submits the task that wipes it: only the node's proof makes it free.
    ///
    /// # Errors
    /// If there is none, a machine has it, or a task works on it.
    pub async fn approve_slot(
        &self,
        by: &Actor,
        which: WhichSlot<'_>,
        size: SlotSize,
    ) -> Result<ApprovedSlot, AdminError> {
        let target = format!("slot {}/{}", which.node_id, which.slot_id);
        let mut act = Act::begin(&self.store, by, "slot.approve", target).await?;
        let done = self.approve_in(&mut act, by, which, size).await;
        let detail = json!({ "task_id": done.as_ref().ok().map(|d| &d.task_id), "slot": done.as_ref().ok().map(|d| &d.slot.slot) });
        let done = act.end(done, detail).await?;
        control::nudge(&self.home);
        Ok(done)
    }

    async fn approve_in(
        &self,
        act: &mut Act,
        by: &Actor,
        which: WhichSlot<'_>,
        size: SlotSize,
    ) -> Result<ApprovedSlot, AdminError> {
        let mut row = self.idle(act, which).await?;
        if row.state == SlotState::Free && size.vcpu_count.is_none() && size.memory_mib.is_none() {
            let text = format!("{} is free already", which.slot_id);
            return Err(AdminError::field(Code::InvalidState, "slot_id", text));
        }
        row.slot.vcpu_count = size.vcpu_count.unwrap_or(row.slot.vcpu_count);
        row.slot.memory_mib = size.memory_mib.unwrap_or(row.slot.memory_mib);
        row.slot
            .check()
            .map_err(|(member, what)| AdminError::field(Code::InvalidField, member, what))?;
        row.state = SlotState::Approved;
        row.allocation_id = None;
        row.vm_name = None;
        row.note = None;
        // What a task that ended without the node's word would still say of it counts no more.
        row.task_id = None;
        row.changed_ms = clock::now_ms();
        slot::put(act.conn(), &row).await?;
        let params = json!({
            "allocation_id": "first-wipe", "vm_name": row.slot.slot_id, "slots": [row.slot],
        });
        let wipe = Submission {
            task_id: None,
            node_id: &row.node_id,
            cluster_id: Some(&row.cluster_id),
            kind: TaskType::SliceVmRelease,
            params: &params.to_string(),
            expires_seconds: WIPE_WITHIN_SECONDS,
        };
        let target = format!("slot {}/{}", which.node_id, which.slot_id);
        let task = self.submit_in(act, by, &wipe).await?;
        act.aim(target);
        let of = (&row.cluster_id, &row.node_id);
        let slot = slot::find(act.conn(), of, which.slot_id).await?;
        Ok(ApprovedSlot {
            slot: slot.ok_or_else(|| missing(which.slot_id))?,
            task_id: task.task_id.to_string(),
        })
    }

    /// Lets a slot not be let any more.
    ///
    /// # Errors
    /// If there is none, a machine has it, or a task works on it.
    pub async fn retire_slot(&self, by: &Actor, which: WhichSlot<'_>) -> Result<SlotRow, AdminError> {
        let target = format!("slot {}/{}", which.node_id, which.slot_id);
        let mut act = Act::begin(&self.store, by, "slot.retire", target).await?;
        let done = async {
            let mut row = self.idle(&mut act, which).await?;
            row.state = SlotState::Retired;
            row.note = None;
            row.task_id = None;
            row.changed_ms = clock::now_ms();
            slot::put(act.conn(), &row).await?;
            Ok(row)
        };
        let done = done.await;
        act.end(done, json!({})).await
    }

    /// The slot, if nothing and nobody works on it.
    async fn idle(&self, act: &mut Act, which: WhichSlot<'_>) -> Result<SlotRow, AdminError> {
        let cluster = self.cluster_of(act, which.node_id, which.cluster_id).await?;
        slot::sweep(act.conn(), clock::now_ms()).await?;
        let row = slot::find(act.conn(), (&cluster, which.node_id), which.slot_id)
            .await?
            .ok_or_else(|| missing(which.slot_id))?;
        let refuse = |text: String| Err(AdminError::field(Code::InvalidState, "slot_id", text));
        if let Some(task) = slot::holder(act.conn(), &row).await? {
            return refuse(format!("task {task} works on {}", which.slot_id));
        }
        match &row.vm_name {
            Some(vm) if row.state != SlotState::Retired => {
                let text = format!(
                    "{} is {}, with machine {vm}: submit slice.vm_release of it",
                    which.slot_id, row.state
                );
                refuse(text)
            }
            _ if !row.state.is_idle() => refuse(format!("{} is {}", which.slot_id, row.state)),
            _ => Ok(row),
        }
    }
}

fn missing(id: &SlotId) -> AdminError {
    AdminError::missing(
        "slot_id",
        format!("{id} is not on record (virtengine-provider slot list)"),
    )
}
