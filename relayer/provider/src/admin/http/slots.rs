//! Slots of nodes.

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::task::{SliceSlot, SlotId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::call::{Call, Nothing};
use super::which::InCluster;
use crate::admin::{AdminError, ApprovedSlot, SlotSize, WhichSlot};
use crate::slot::SlotRow;

type Answer<T> = Result<T, AdminError>;

/// A slot of a node.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfSlot {
    /// The node.
    node_id: NodeId,
    /// The slot.
    slot_id: SlotId,
}

/// A slot that discovery does not find.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AddSlot {
    /// The node.
    node_id: NodeId,
    /// Its cluster, if several have a node of this id.
    cluster_id: Option<ClusterId>,
    /// Its devices and its size.
    slot: SliceSlot,
}

/// Of which size machines on the slot are; absent: as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApproveSlot {
    /// Virtual CPUs.
    #[schemars(range(min = 1, max = 1024))]
    vcpu_count: Option<u32>,
    /// Memory, MiB.
    #[schemars(range(min = 64, max = 16_777_216))]
    memory_mib: Option<u32>,
}

pub(super) async fn add(call: Call<Nothing, Nothing, AddSlot>) -> Answer<SlotRow> {
    let AddSlot {
        node_id,
        cluster_id,
        slot,
    } = call.body;
    call.desk
        .add_slot(&call.by, &node_id, cluster_id.as_ref(), slot)
        .await
}

pub(super) async fn approve(call: Call<OfSlot, InCluster, ApproveSlot>) -> Answer<ApprovedSlot> {
    let which = WhichSlot {
        node_id: &call.path.node_id,
        cluster_id: call.query.cluster_id.as_ref(),
        slot_id: &call.path.slot_id,
    };
    let size = SlotSize {
        vcpu_count: call.body.vcpu_count,
        memory_mib: call.body.memory_mib,
    };
    call.desk.approve_slot(&call.by, which, size).await
}

pub(super) async fn retire(call: Call<OfSlot, InCluster, Nothing>) -> Answer<SlotRow> {
    let which = WhichSlot {
        node_id: &call.path.node_id,
        cluster_id: call.query.cluster_id.as_ref(),
        slot_id: &call.path.slot_id,
    };
    call.desk.retire_slot(&call.by, which).await
}
