use anyhow::Context as _;
use hpc_schema::task::SliceSlot;

use super::args::SlotCommand;
use super::desk::Desk;
use super::output::{Output, or_dash};
use super::task::given;
use crate::admin::SlotSize;
use crate::slot::SlotRow;

pub(super) async fn run(desk: &Desk, what: SlotCommand, out: Output) -> anyhow::Result<()> {
    match what {
        SlotCommand::List {
            node_id,
            cluster_id,
            state,
        } => {
            let mut rows = desk.slots(cluster_id.as_ref(), node_id.as_ref(), state).await?;
            // People count places.
            rows.sort_by_cached_key(|r| (r.cluster_id.clone(), r.node_id.clone(), r.slot.slot_index));
            list(&rows, out)
        }
        SlotCommand::Add { whose, slot } => {
            let text = given("--slot", &slot)?;
            let slot: SliceSlot = serde_json::from_str(&text).context("--slot")?;
            let row = desk.add_slot(&whose, slot).await?;
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
            let approved = desk.approve_slot(&which, size).await?;
            let text = format!(
                "slot {} is approved; task {} wipes it",
                approved.slot.slot_id(),
                approved.task_id
            );
            out.done(&text, &approved)
        }
        SlotCommand::Retire(which) => {
            let row = desk.retire_slot(&which).await?;
            out.done(&format!("slot {} is retired", row.slot_id()), &row)
        }
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
