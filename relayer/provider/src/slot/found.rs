use crate::db::Conn;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::task::{CandidateSlot, SliceSlot, Topology};

use super::row::{SlotRow, find, put};
use super::state::SlotState;
use crate::store::StoreError;

/// What became of a slot that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A new candidate.
    New,
    /// Known, and as it was.
    Same,
    /// Known as a candidate, with other devices now.
    Changed,
    /// Known, past being a candidate, and found with other devices: it is noted, and nothing else is changed.
    Differs,
}

/// Puts a slot on record as a candidate.
///
/// # Errors
/// If the store fails.
pub async fn add(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    slot: SliceSlot,
    now_ms: u64,
) -> Result<Found, StoreError> {
    let Some(mut known) = find(conn, (cluster, node), &slot.slot_id).await? else {
        let row = SlotRow {
            cluster_id: cluster.clone(),
            node_id: node.clone(),
            state: SlotState::Candidate,
            slot,
            allocation_id: None,
            vm_name: None,
            task_id: None,
            settled_by: None,
            note: None,
            found_ms: now_ms,
            changed_ms: now_ms,
        };
        put(conn, &row).await?;
        return Ok(Found::New);
    };
    // Its size is the operator's decision.
    let found = SliceSlot {
        vcpu_count: known.slot.vcpu_count,
        memory_mib: known.slot.memory_mib,
        ..slot
    };
    if found == known.slot {
        return Ok(Found::Same);
    }
    known.changed_ms = now_ms;
    let outcome = if known.state == SlotState::Candidate {
        known.slot = found;
        Found::Changed
    } else {
        known.note = Some("discovery finds other devices in its place; retire it".to_owned());
        Found::Differs
    };
    put(conn, &known).await?;
    Ok(outcome)
}

/// Candidates of a discovery that have all that a slot needs.
pub(super) fn candidates(topology: Topology) -> impl Iterator<Item = SliceSlot> {
    topology.candidate_slots.into_iter().filter_map(slot)
}

fn slot(c: CandidateSlot) -> Option<SliceSlot> {
    // Defaults of the schema for what discovery does not decide.
    let slot = serde_json::json!({
        "slot_id": c.slot_id, "slot_index": c.slot_index, "pci_address": c.pci_address,
        "fabric_device": c.fabric_device, "nvme_device": c.nvme_device?, "numa_node": c.numa_node,
        "mac_address": c.mac_address, "private_ip": c.private_ip,
    });
    serde_json::from_value::<SliceSlot>(slot)
        .ok()
        .filter(|s| s.check().is_ok())
}
