//! `slice.vm_release` (specification 003): graceful, hard, undefine, rebind, wipe, release, and a look whether it is so.

use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::{CleanupProof, HostPath, Params, SliceSlot, SliceVmRelease, SliceVmReleased};
use serde_json::{Value, json};

use super::checked::text;
use super::slice_host as host;
use super::slice_proof::{self as proof, Look};
use super::slice_provision::device;
use crate::slice::SliceTools;
use crate::slice::libvirt::{Libvirt, Word};
use crate::task::context::Context;
use crate::task::effect::{Disk, Effect};
use crate::task::failure::Failure;
use crate::task::handler::{Handler, Recovery};
use crate::task::ledger::Holding;
use crate::task::owner::{Owner, SLICE};
use crate::task::policy::Policy;
use crate::task::undo::Undone;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(250);

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Release;

impl Handler for Release {
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn owner(&self, params: &Params) -> Option<Owner> {
        match params {
            Params::SliceVmRelease(p) => Some(Owner::new(SLICE, p.vm_name.as_str())),
            _ => None,
        }
    }

    fn allow(&self, params: &Params, policy: &Policy) -> Result<(), Failure> {
        match params {
            Params::SliceVmRelease(p) => p.slots.iter().try_for_each(|s| device(s, policy)),
            _ => Ok(()),
        }
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::SliceVmRelease(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        serde_json::to_value(release(context, p)?).map_err(Failure::failed)
    }
}

fn release(c: &mut Context<'_>, p: &SliceVmRelease) -> Result<SliceVmReleased, Failure> {
    let owner = Owner::new(SLICE, p.vm_name.as_str());
    let folder = c.host().policy.machines.programs.clone();
    let tools =
        SliceTools::find(folder.as_ref().map(|f| std::path::Path::new(f.as_str()))).map_err(|missing| {
            let what = format!("{} missing", missing.programs.join(", "));
            Failure::new(Code::NotSupported, what)
        })?;
    let holdings = c.holdings(&owner);
    for holding in &holdings {
        let whose = holding.facts.get("allocation_id").and_then(Value::as_str);
        if whose != Some(p.allocation_id.as_str()) {
            let what = format!(
                "allocation_id: {} is not {}'s machine",
                p.vm_name, p.allocation_id
            );
            return Err(Failure::new(Code::PolicyDenied, what));
        }
    }
    if !holdings.is_empty() && !p.slots.is_empty() {
        let what = format!("slots: {} has slots of its own; name none", p.vm_name);
        return Err(Failure::new(Code::PolicyDenied, what));
    }
    let uuids: Vec<String> = holdings.iter().filter_map(|h| text_of(h, "uuid")).collect();
    let mut slots: Vec<SliceSlot> = holdings.iter().flat_map(slots_of).collect();
    let files: Vec<HostPath> = holdings.iter().flat_map(files_of).collect();
    let existed = !holdings.is_empty();
    let hard_stopped = match existed {
        true => take_down(c, p, &tools, &owner, &uuids)?,
        false => {
            slots.clone_from(&p.slots);
            wipe(c, p, &tools)?;
            false
        }
    };
    c.phase("verify")?;
    let look = Look {
        vm: &p.vm_name,
        uuids: &uuids,
        slots: &slots,
        files: &files,
        wiped: p.wipe,
    };
    let cleanup = proof::look(c, &tools, &look)?;
    let lacks = slots.iter().find_map(|s| cleanup.lacks(s));
    if p.wipe
        && let Some(what) = &lacks
    {
        let what = format!("what was looked at after the release does not show {what}: {cleanup:?}");
        return Err(Failure::new(Code::OutcomeUnknown, what));
    }
    Ok(released(
        c,
        p,
        (existed, hard_stopped),
        slots,
        cleanup,
        lacks.is_none(),
    ))
}

fn released(
    c: &Context<'_>,
    p: &SliceVmRelease,
    (existed, hard_stopped): (bool, bool),
    slots: Vec<SliceSlot>,
    cleanup: CleanupProof,
    clean: bool,
) -> SliceVmReleased {
    SliceVmReleased {
        allocation_id: p.allocation_id.clone(),
        vm_name: p.vm_name.clone(),
        existed,
        hard_stopped,
        slots_free: p.wipe && clean && !slots.is_empty(),
        slots: slots.into_iter().map(|s| s.slot_id).collect(),
        cleanup,
        timings: c.timings(),
    }
}

fn text_of(holding: &Holding, name: &str) -> Option<String> {
    Some(holding.facts.get(name)?.as_str()?.to_owned())
}

fn slots_of(holding: &Holding) -> Vec<SliceSlot> {
    let slots = holding.facts.get("slots").cloned();
    slots
        .and_then(|s| serde_json::from_value(s).ok())
        .unwrap_or_default()
}

fn files_of(holding: &Holding) -> impl Iterator<Item = HostPath> + '_ {
    holding.effects.iter().filter_map(|(_, effect, _)| match effect {
        Effect::File(file) => Some(file.path.clone()),
        _ => None,
    })
}

/// The machine's own way: what its provision has made, newest first. Whether it had to be stopped by force.
fn take_down(
    c: &mut Context<'_>,
    p: &SliceVmRelease,
    tools: &SliceTools,
    owner: &Owner,
    uuids: &[String],
) -> Result<bool, Failure> {
    c.phase("shutdown")?;
    // From here on nobody knows what is on them, until they are wiped and looked at, however this task ends.
    let slots: Vec<SliceSlot> = c.holdings(owner).iter().flat_map(slots_of).collect();
    c.note_on(owner, "public.unproven_slots", json!(slots.len()))?;
    let libvirt = Libvirt::new(&tools.virsh);
    let mut hard_stopped = false;
    for uuid in uuids {
        hard_stopped |= !shut_down(
            c,
            &libvirt,
            uuid,
            Duration::from_secs(u64::from(p.graceful_timeout_seconds)),
        )?;
    }
    c.phase("undefine")?;
    good(&c.release_some(owner, &|e| matches!(e, Effect::Domain(_)))?)?;
    c.phase("rebind")?;
    good(&c.release_some(owner, &|e| matches!(e, Effect::Passthrough(_)))?)?;
    c.phase("files")?;
    good(&c.release_some(owner, &|e| !matches!(e, Effect::Disk(_) | Effect::Lease(_)))?)?;
    if !p.wipe {
        // The slots stay held until they are released with a wipe.
        return Ok(hard_stopped);
    }
    c.phase("wipe")?;
    good(&c.release_some(owner, &|e| matches!(e, Effect::Disk(_)))?)?;
    // The leases go last: what does not look clean stays nobody's.
    let look = Look {
        vm: &p.vm_name,
        uuids,
        slots: &slots,
        files: &[],
        wiped: true,
    };
    let mut seen = proof::look(c, tools, &look)?;
    seen.leases_gone = true;
    if let Some(what) = slots.iter().find_map(|s| seen.lacks(s)) {
        let what = format!("before its slots were given back there was no sign of {what}: {seen:?}");
        return Err(Failure::new(Code::OutcomeUnknown, what));
    }
    c.phase("release")?;
    good(&c.release(owner)?)?;
    Ok(hard_stopped)
}

fn good(undone: &Undone) -> Result<(), Failure> {
    match undone.stuck.first() {
        None => Ok(()),
        Some(why) => Err(Failure::new(Code::OutcomeUnknown, why)),
    }
}

/// Presses the power button and waits. Whether the machine has ended by itself.
fn shut_down(c: &Context<'_>, libvirt: &Libvirt, uuid: &str, grace: Duration) -> Result<bool, Failure> {
    if !libvirt.runs(uuid, c.stop())? {
        return Ok(true);
    }
    if let Err(e) = libvirt.tell(uuid, Word::Shutdown, c.stop()) {
        c.say(&format!("the power button cannot be pressed: {e}"));
    }
    let begun = Instant::now();
    while libvirt.runs(uuid, c.stop())? {
        if begun.elapsed() >= grace {
            return Ok(false);
        }
        c.check()?;
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// Slots on which no machine of ours is: taken, brought to their resting state, wiped, given back.
fn wipe(c: &mut Context<'_>, p: &SliceVmRelease, tools: &SliceTools) -> Result<(), Failure> {
    if p.slots.is_empty() {
        return Ok(());
    }
    let slots: Vec<&SliceSlot> = p.slots.iter().collect();
    c.phase("lease_acquire")?;
    host::leases(c, &slots, p.allocation_id.as_str())?;
    c.phase("rebind")?;
    host::bind(c, &slots)?;
    c.phase("wipe")?;
    for slot in slots {
        let disk = c.apply(Disk {
            device: slot.nvme_device.clone(),
            write: None,
            blkdiscard: text(&tools.blkdiscard)?,
        })?;
        c.undo(disk)?;
    }
    c.phase("release")?;
    c.undo_all()
}
