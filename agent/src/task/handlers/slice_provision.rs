//! `slice.vm_provision` (specification 003): a machine of libvirt with slots of its own, in seventeen phases.

use std::path::Path;

use hpc_schema::code::Code;
use hpc_schema::task::{
    Accel, DriverStrategy, HttpsUrl, Params, SliceSlot, SliceVmProvision, SliceVmProvisioned,
};
use serde_json::{Value, json};

use super::checked::{most, text};
use super::slice_work::Work;
use super::vm_launch::uuid;
use super::{slice_host as host, slice_image as image, slice_ready as ready, slice_seed as seed};
use crate::fault;
use crate::slice::libvirt::{Guest, arguments};
use crate::slice::{SliceFolder, SliceTools};
use crate::task::context::Context;
use crate::task::effect::Domain;
use crate::task::failure::Failure;
use crate::task::handler::Handler;
use crate::task::owner::{Owner, SLICE};
use crate::task::policy::Policy;

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Provision;

impl Handler for Provision {
    fn owner(&self, params: &Params) -> Option<Owner> {
        match params {
            Params::SliceVmProvision(p) => Some(Owner::new(SLICE, p.vm_name.as_str())),
            _ => None,
        }
    }

    fn allow(&self, params: &Params, policy: &Policy) -> Result<(), Failure> {
        match params {
            Params::SliceVmProvision(p) => allowed(p, policy),
            _ => Ok(()),
        }
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::SliceVmProvision(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        serde_json::to_value(provision(context, p)?).map_err(Failure::failed)
    }
}

fn allowed(p: &SliceVmProvision, policy: &Policy) -> Result<(), Failure> {
    let deny = |what: String| Err(Failure::new(Code::PolicyDenied, what));
    let bounds = &policy.machines;
    let sum = |of: fn(&SliceSlot) -> u32| {
        p.slots
            .iter()
            .fold(0u64, |n, s| n.saturating_add(u64::from(of(s))))
    };
    most(
        "slots.vcpu_count",
        sum(|s| s.vcpu_count),
        u64::from(bounds.max_vcpus),
        "max_vcpus",
    )?;
    most(
        "slots.memory_mib",
        sum(|s| s.memory_mib),
        u64::from(bounds.max_memory_mib),
        "max_memory_mib",
    )?;
    for slot in &p.slots {
        device(slot, policy)?;
    }
    let bridges = &policy.slices.bridges;
    if bridges.as_ref().is_some_and(|b| !b.contains(&p.ovs_bridge)) {
        return deny(format!(
            "ovs_bridge: {} is not among slices.bridges of the policy",
            p.ovs_bridge
        ));
    }
    if let Some(url) = &p.image_url
        && !bounds.image_hosts.iter().any(|h| h == place(url))
    {
        return deny(format!(
            "image_url: {} is not among machines.image_hosts of the policy",
            place(url)
        ));
    }
    let gpus = p.slots.iter().any(|s| s.pci_address.is_some());
    if gpus && p.driver_strategy == DriverStrategy::CloudInit && policy.slices.driver_packages.is_empty() {
        let what = "driver_strategy: cloud-init installs slices.driver_packages of the policy, and there are none; \
                    name them, or ask for preinstalled or none";
        return deny(what.to_owned());
    }
    Ok(())
}

/// Whether the slot's device may be let.
pub(super) fn device(slot: &SliceSlot, policy: &Policy) -> Result<(), Failure> {
    let device = slot.nvme_device.as_str();
    let named = policy
        .slices
        .devices
        .iter()
        .any(|d| device.starts_with(d.as_str()));
    if named && !device.contains(',') {
        return Ok(());
    }
    let what = format!("slots.nvme_device: {device} is none of slices.devices of the policy");
    Err(Failure::new(Code::PolicyDenied, what))
}

/// Host of an address, with its port if it names one.
fn place(url: &HttpsUrl) -> &str {
    let rest = url.as_str().strip_prefix("https://").unwrap_or_default();
    rest.split('/').next().unwrap_or_default()
}

/// Where a test lets a phase fail, or kills.
fn passed(phase: &'static str) -> Result<(), Failure> {
    if fault::phase(phase) {
        return Err(Failure::failed(format!("{phase} was to fail")));
    }
    Ok(())
}

fn provision(c: &mut Context<'_>, p: &SliceVmProvision) -> Result<SliceVmProvisioned, Failure> {
    let owner = Owner::new(SLICE, p.vm_name.as_str());
    if !c.holdings(&owner).is_empty() {
        let what = format!(
            "vm_name: {} is a slice's machine already; release it, or choose another name",
            p.vm_name
        );
        return Err(Failure::new(Code::ResourceBusy, what));
    }
    let mut slots: Vec<&SliceSlot> = p.slots.iter().collect();
    slots.sort_by_key(|s| s.slot_index);
    let work = Work {
        p,
        slots,
        folder: SliceFolder::new(&c.host().dir, &p.vm_name),
        uuid: uuid()?,
    };
    c.phase("lease_acquire")?;
    host::leases(c, &work.slots, p.allocation_id.as_str())?;
    note(c, &work)?;
    passed("lease_acquire")?;
    c.phase("host_dependencies")?;
    let tools = host::dependencies(c)?;
    passed("host_dependencies")?;
    c.phase("host_passthrough_check")?;
    let accel = host::passthrough(c, &work)?;
    passed("host_passthrough_check")?;
    c.phase("vfio_bind_check")?;
    host::bind(c, &work.slots)?;
    passed("vfio_bind_check")?;
    c.phase("image_stat_download")?;
    let reading = image::present(c, &work, &tools)?;
    passed("image_stat_download")?;
    c.phase("image_digest_verify")?;
    let (image, bytes) = image::verified(c, &work)?;
    passed("image_digest_verify")?;
    c.phase("cloud_init_dir")?;
    seed::folder(c, &work)?;
    passed("cloud_init_dir")?;
    c.phase("terminal_key")?;
    let keys = seed::keys(c, &work)?;
    passed("terminal_key")?;
    c.phase("guest_telemetry_register")?;
    seed::telemetry(c, &work)?;
    passed("guest_telemetry_register")?;
    c.phase("cloud_init_seed_files")?;
    let files = seed::files(c, &work, &keys)?;
    passed("cloud_init_seed_files")?;
    c.phase("cloud_localds")?;
    seed::iso(c, &work, &tools, files)?;
    passed("cloud_localds")?;
    c.phase("runtime_validate")?;
    host::validate(c, &work, &tools, bytes)?;
    passed("runtime_validate")?;
    c.phase("dhcp_reservation")?;
    seed::dhcp(c, &work)?;
    passed("dhcp_reservation")?;
    c.phase("image_write_convert")?;
    image::write(c, &work, &tools, &image)?;
    // Its disk has it all.
    drop(reading);
    passed("image_write_convert")?;
    c.phase("virt_install")?;
    install(c, &work, &tools, accel)?;
    passed("virt_install")?;
    c.phase("readiness")?;
    let readiness = ready::wait(c, &work, &tools)?;
    let telemetry = ready::sample(c, &work, &tools)?;
    passed("readiness")?;
    c.phase("performance_probe")?;
    let performance = ready::measure(c, &work, &tools)?;
    passed("performance_probe")?;
    Ok(SliceVmProvisioned {
        allocation_id: p.allocation_id.clone(),
        vm_name: p.vm_name.clone(),
        default_user: p.default_username.to_string(),
        private_ip: work.first()?.private_ip,
        ssh_port: 22,
        slot_count: u32::try_from(p.slots.len()).unwrap_or(u32::MAX),
        readiness,
        performance,
        timings: c.timings(),
        raw_vnc: false,
        console_model: "gateway_required".to_owned(),
        accel,
        telemetry,
    })
}

/// What whoever takes it down has to know; `public.` is for heartbeats and `/v1/capacity`.
fn note(c: &mut Context<'_>, work: &Work<'_>) -> Result<(), Failure> {
    let sum = |of: fn(&SliceSlot) -> u32| {
        work.slots
            .iter()
            .fold(0u64, |n, s| n.saturating_add(u64::from(of(s))))
    };
    c.fact("uuid", json!(work.uuid))?;
    c.fact("allocation_id", json!(work.p.allocation_id))?;
    c.fact("slots", json!(work.slots))?;
    c.fact("public.slots", json!(work.slots.len()))?;
    c.fact("public.vcpus", json!(sum(|s| s.vcpu_count)))?;
    c.fact("public.memory_mib", json!(sum(|s| s.memory_mib)))?;
    c.fact(
        "public.gpus",
        json!(work.slots.iter().filter(|s| s.pci_address.is_some()).count()),
    )
}

fn install(c: &mut Context<'_>, work: &Work<'_>, tools: &SliceTools, accel: Accel) -> Result<(), Failure> {
    let seed = work.folder.seed();
    let plain = |path: &Path| path.to_str().is_some_and(|t| !t.contains(','));
    if !plain(&seed) {
        return Err(Failure::failed(
            "tasks.dir: a comma in it cannot be told to virt-install; choose another",
        ));
    }
    let guest = Guest {
        p: work.p,
        slots: &work.slots,
        uuid: &work.uuid,
        accel,
        seed: &seed,
    };
    c.apply(Domain {
        virsh: text(&tools.virsh)?,
        virt_install: text(&tools.virt_install)?,
        arguments: arguments(&guest),
        folder: text(work.folder.path())?,
        name: work.p.vm_name.to_string(),
        uuid: work.uuid.clone(),
    })?;
    Ok(())
}
