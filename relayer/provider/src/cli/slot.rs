use anyhow::Context as _;
use hpc_schema::task::SliceSlot;

use super::args::{SlotCommand, WhichSlotArgs};
use super::output::{Output, or_dash};
use super::task::given;
use super::who;
use crate::admin::{Admin, SlotSize, WhichSlot};
use crate::slot::SlotRow;

pub(super) async fn run(desk: &Admin, what: SlotCommand, out: Output) -> anyhow::Result<()> {
    match what {
        SlotCommand::List {
            node_id,
            cluster_id,
            state,
        } => list(
            &desk.slots(cluster_id.as_ref(), node_id.as_ref(), state).await?,
            out,
        ),
        SlotCommand::Add { whose, slot } => {
            let text = given("--slot", &slot)?;
            let slot: SliceSlot = serde_json::from_str(&text).context("--slot")?;
            let row = desk
                .add_slot(&who(), &whose.node_id, whose.cluster_id.as_ref(), slot)
                .await?;
            out.done(&format!("slot {} is {}", row.slot_id(), row.state), &row)
        }
        SlotCommand::Approve {
            which,
            vcpus,
            memory_mib,
        } => {
            let size = SlotSize {
                vcpu_count: vcpus,
                memory_mib,
            };
            let approved = desk.approve_slot(&who(), meant(&which), size).await?;
            let text = format!(
                "slot {} is approved; task {} wipes it",
                approved.slot.slot_id(),
                approved.task_id
            );
            out.done(&text, &approved)
        }
        SlotCommand::Retire(which) => {
            let row = desk.retire_slot(&who(), meant(&which)).await?;
            out.done(&format!("slot {} is retired", row.slot_id()), &row)
        }
    }
}

fn meant(which: &WhichSlotArgs) -> WhichSlot<'_> {
    WhichSlot {
        node_id: &which.whose.node_id,
        cluster_id: which.whose.cluster_id.as_ref(),
        slot_id: &which.slot_id,
    }
}

fn list(rows: &[SlotRow], out: Output) -> anyhow::Result<()> {
    let head = [
        "NODE",
        "SLOT",
        "STATE",
        "GPU",
        "NVME",
        "VCPUS",
        "MIB",
        "MACHINE",
        "ALLOCATION",
        "TASK",
        "NOTE",
    ];
    out.list(rows, &head, |r| {
        vec![
            r.node_id.to_string(),
            r.slot_id().to_string(),
            r.state.to_string(),
            or_dash(r.slot.pci_address.as_ref()),
            r.slot.nvme_device.to_string(),
            r.slot.vcpu_count.to_string(),
            r.slot.memory_mib.to_string(),
            or_dash(r.vm_name.as_ref()),
            or_dash(r.allocation_id.as_ref()),
            or_dash(r.task_id.as_ref()),
            or_dash(r.note.as_ref()),
        ]
    })
}
