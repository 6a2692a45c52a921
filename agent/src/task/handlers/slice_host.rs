//! What a host must have and give before a slice's machine is made.

use std::path::Path;
use std::sync::Mutex;

use hpc_schema::code::Code;
use hpc_schema::task::{Accel, PackageName, SliceSlot};
use serde_json::json;

use super::admission::{self, ADMITTED};
use super::checked::text;
use super::packages;
use super::slice_work::Work;
use super::vm_launch::select;
use crate::machine::Tools;
use crate::machine::admission::Ask;
use crate::probe::names_in;
use crate::probe::tool::find;
use crate::slice::{SliceTools, disk, lease, pci};
use crate::task::context::Context;
use crate::task::effect::{Lease, Passthrough};
use crate::task::exec::Program;
use crate::task::failure::Failure;

/// Packages are installed one task at a time.
static INSTALL: Mutex<()> = Mutex::new(());
/// What `ovs-vsctl br-exists` ends with where there is no such bridge.
const NO_BRIDGE: i32 = 2;

/// Takes the slots, each for itself alone.
pub(super) fn leases(c: &mut Context<'_>, slots: &[&SliceSlot], holder: &str) -> Result<(), Failure> {
    for slot in slots {
        let path = text(&lease(&c.host().dir, &slot.slot_id))?;
        c.apply(Lease {
            path,
            resource: format!("slot/{}", slot.slot_id),
            holder: holder.to_owned(),
        })?;
    }
    Ok(())
}

/// The programs that slices need; those that are missing are installed where the site lets a provision do so.
pub(super) fn dependencies(c: &mut Context<'_>) -> Result<SliceTools, Failure> {
    let policy = c.host().policy.clone();
    let folder = policy.machines.programs.as_ref().map(|p| Path::new(p.as_str()));
    let missing = match SliceTools::find(folder) {
        Ok(tools) => return Ok(tools),
        Err(missing) => missing,
    };
    let names: Vec<&str> = missing.packages.iter().map(PackageName::as_str).collect();
    let allowed = missing.packages.iter().all(|p| policy.packages.contains(p));
    if !policy.slices.install_dependencies || !allowed || folder.is_some() {
        let what = format!(
            "{} missing: install the packages {}, by node.prerequisites_install (it needs approval) or by hand",
            missing.programs.join(", "),
            names.join(" ")
        );
        return Err(Failure::new(Code::NotSupported, what));
    }
    let _one = c.stop().lock(&INSTALL)?;
    packages::install(c, &missing.packages)?;
    SliceTools::find(folder).map_err(|missing| {
        let what = format!(
            "{} still missing after their packages were installed",
            missing.programs.join(", ")
        );
        Failure::new(Code::NotSupported, what)
    })
}

/// What carries instructions out, and whether functions can be handed through.
pub(super) fn passthrough(c: &mut Context<'_>, work: &Work<'_>) -> Result<Accel, Failure> {
    let host = c.host().clone();
    let programs = host
        .policy
        .machines
        .programs
        .as_ref()
        .map(|p| Path::new(p.as_str()));
    let accel = select(c, &Tools::find(programs)?, work.p.accel)?;
    can_hand_through(c, &work.slots)?;
    Ok(accel)
}

/// Whether this host can hand the slots' functions through; loads the driver that does.
fn can_hand_through(c: &Context<'_>, slots: &[&SliceSlot]) -> Result<(), Failure> {
    if slots.iter().all(|s| s.functions().next().is_none()) {
        return Ok(());
    }
    let sys = &c.host().roots.sys;
    if names_in(&sys.join("kernel/iommu_groups")).is_empty() {
        let what =
            "there are no IOMMU groups; boot with intel_iommu=on iommu=pt (AMD: amd_iommu=on iommu=pt)";
        return Err(Failure::new(Code::NotSupported, what));
    }
    if !sys.join("bus/pci/drivers").join(pci::DRIVER).is_dir() {
        let modprobe = find("modprobe", None)
            .ok_or_else(|| Failure::new(Code::NotSupported, "modprobe is not installed; install kmod"))?;
        c.run(Program::new(&modprobe).value(pci::DRIVER)?)?;
    }
    Ok(())
}

/// Brings the slots' functions to `vfio-pci`, also those of a slot that no machine ever had.
pub(super) fn bind(c: &mut Context<'_>, slots: &[&SliceSlot]) -> Result<(), Failure> {
    can_hand_through(c, slots)?;
    let sys = c.host().roots.sys.clone();
    for function in slots.iter().flat_map(|s| s.functions()) {
        let along = pci::companions(&sys, function).map_err(|e| Failure::new(Code::NotSupported, e))?;
        for address in std::iter::once(function.clone()).chain(along) {
            c.apply(Passthrough {
                sys: text(&sys)?,
                address,
            })?;
        }
    }
    Ok(())
}

/// Bridge, room and disks, at the last moment before they are used.
pub(super) fn validate(
    c: &mut Context<'_>,
    work: &Work<'_>,
    tools: &SliceTools,
    image: u64,
) -> Result<(), Failure> {
    let bridge = &work.p.ovs_bridge;
    let asked = Program::new(&tools.ovs_vsctl)
        .flag("--timeout=10")
        .flag("br-exists")
        .value(bridge.as_str())?
        .ask(c.stop())?;
    match asked.code {
        0 => {}
        NO_BRIDGE => {
            let what = format!("ovs_bridge: Open vSwitch has no bridge {bridge}; ovs-vsctl add-br {bridge}");
            return Err(Failure::new(Code::NotSupported, what));
        }
        code => {
            let said = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
            return Err(Failure::failed(format!(
                "ovs-vsctl br-exists ended with {code}: {said}"
            )));
        }
    }
    let ask = Ask {
        vcpus: work.slots.iter().fold(0, |n, s| n.saturating_add(s.vcpu_count)),
        memory_mib: work
            .slots
            .iter()
            .fold(0, |n, s| n.saturating_add(u64::from(s.memory_mib))),
        disk: 0,
    };
    let one = admission::admit(c, ask, None)?
        .map_err(|full| Failure::new(Code::ResourceBusy, format_args!("slots.{full}")))?;
    c.fact(ADMITTED, json!(true))?;
    drop(one);
    for slot in &work.slots {
        disk::unused(&slot.nvme_device).map_err(|e| Failure::new(Code::ResourceBusy, e))?;
    }
    let first = work.first()?;
    let bytes = disk::unused(&first.nvme_device)?;
    if bytes < image {
        let what = format!(
            "image_path: its disk has {image} bytes, and {} has {bytes}",
            first.nvme_device
        );
        return Err(Failure::new(Code::InvalidField, what));
    }
    Ok(())
}
