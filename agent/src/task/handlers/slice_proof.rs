//! What is looked at after a slice's machine was taken down.

use std::path::Path;

use hpc_schema::task::{CleanupProof, HostPath, SliceSlot, VmId};

use super::slice_seed::{dhcp_file, telemetry_file};
use crate::slice::libvirt::Libvirt;
use crate::slice::{SliceFolder, SliceTools, disk, lease, pci};
use crate::task::context::Context;
use crate::task::failure::Failure;

/// What is looked at.
pub(super) struct Look<'a> {
    pub(super) vm: &'a VmId,
    pub(super) uuids: &'a [String],
    pub(super) slots: &'a [SliceSlot],
    /// Files that were the machine's by the journal: an earlier version named them otherwise.
    pub(super) files: &'a [HostPath],
    /// Whether their disks were wiped: bytes are read back only then.
    pub(super) wiped: bool,
}

/// Looks at each thing that a machine consists of.
pub(super) fn look(c: &Context<'_>, tools: &SliceTools, what: &Look<'_>) -> Result<CleanupProof, Failure> {
    let host = c.host();
    let libvirt = Libvirt::new(&tools.virsh);
    let mut domain_gone = !libvirt.named(what.vm.as_str(), c.stop())?;
    for uuid in what.uuids {
        domain_gone &= !libvirt.exists(uuid, c.stop())?;
    }
    let gone = |path: &Path| {
        std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    // A folder that is not there holds nothing.
    let no_file = |path: Result<HostPath, Failure>| path.map_or(true, |p| gone(Path::new(p.as_str())));
    let slices = &host.policy.slices;
    let none_in = |folder: &Option<HostPath>| {
        let folder = folder.as_ref().map(|f| Path::new(f.as_str()));
        let mut all = what.files.iter().map(|f| Path::new(f.as_str()));
        all.all(|f| folder.is_none() || f.parent() != folder || gone(f))
    };
    let mut proof = CleanupProof {
        domain_gone,
        leases_gone: what.slots.iter().all(|s| gone(&lease(&host.dir, &s.slot_id))),
        dhcp_gone: no_file(dhcp_file(host, what.vm.as_str())) && none_in(&slices.dhcp_hosts),
        telemetry_gone: no_file(telemetry_file(host, what.vm.as_str())) && none_in(&slices.telemetry),
        files_gone: gone(SliceFolder::new(&host.dir, what.vm).path()),
        devices_rebound: Vec::new(),
        wiped: Vec::new(),
    };
    for slot in what.slots {
        let bound = slot.functions().filter(|f| pci::is_bound(&host.roots.sys, f));
        proof.devices_rebound.extend(bound.cloned());
        if what.wiped {
            proof
                .wiped
                .push(disk::sample(&slot.nvme_device, c.task_id().as_str())?);
        }
        c.check()?;
    }
    Ok(proof)
}
