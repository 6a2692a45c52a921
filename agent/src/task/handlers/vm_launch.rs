//! `vm.launch` (specification 002): an ephemeral machine over a base image, with a lease that ends here.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::task::{Accel, HostPath, Params, VmLaunch, VmLaunched, VmNetwork};
use serde_json::{Value, json};

use crate::machine::accel::Prober;
use crate::machine::admission::OVERHEAD_MIB;
use crate::machine::qmp::Qmp;
use crate::machine::{Folder, Guest, Image, Lease, Moment, Size, Tools, User, arguments, image};
use crate::task::context::Context;
use crate::task::effect::{Effect, Machine, Trace, machine::ids};
use crate::task::failure::Failure;
use crate::task::handler::Handler;
use crate::task::owner::Owner;
use crate::task::policy::Policy;

use super::checked::{most, text};
use super::vm_prepare::{disk_size, hand_over, overlay, reserve, seed};
use super::vm_ready;

/// Kind of owners.
pub(super) const KIND: &str = "vm";
/// How long QEMU's monitor may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// One probe after the other: who comes second finds what the first has seen.
static PROBE: Mutex<()> = Mutex::new(());

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch;

impl Handler for Launch {
    fn owner(&self, params: &Params) -> Option<Owner> {
        match params {
            Params::VmLaunch(p) => Some(Owner::new(KIND, p.vm_id.as_str())),
            _ => None,
        }
    }

    fn allow(&self, params: &Params, policy: &Policy) -> Result<(), Failure> {
        let Params::VmLaunch(p) = params else {
            return Ok(());
        };
        let bounds = &policy.machines;
        most(
            "vcpu_count",
            u64::from(p.vcpu_count),
            u64::from(bounds.max_vcpus),
            "max_vcpus",
        )?;
        most(
            "memory_mib",
            u64::from(p.memory_mib),
            u64::from(bounds.max_memory_mib),
            "max_memory_mib",
        )?;
        most(
            "lease_seconds",
            p.lease_seconds,
            bounds.max_lease_seconds,
            "max_lease_seconds",
        )?;
        let disk = u64::from(p.disk_gib.unwrap_or(0));
        most("disk_gib", disk, u64::from(bounds.max_disk_gib), "max_disk_gib")?;
        if p.network == VmNetwork::User && !bounds.user_network {
            let what = "network: user reaches whatever this host reaches; machines.user_network of the policy is false";
            return Err(Failure::new(Code::PolicyDenied, what));
        }
        Ok(())
    }

    fn run(&self, context: &mut Context<'_>, params: &Params) -> Result<Value, Failure> {
        let Params::VmLaunch(p) = params else {
            return Err(Failure::failed("parameters of another type"));
        };
        let launched = launch(context, p)?;
        serde_json::to_value(launched).map_err(Failure::failed)
    }
}

fn launch(context: &mut Context<'_>, p: &VmLaunch) -> Result<VmLaunched, Failure> {
    let owner = Owner::new(KIND, p.vm_id.as_str());
    if !context.holdings(&owner).is_empty() {
        let what = format!(
            "vm_id: {} is a machine already; terminate it, or choose another id",
            p.vm_id
        );
        return Err(Failure::new(Code::ResourceBusy, what));
    }
    let host = context.host().clone();
    let folder = Folder::new(&host.dir.machines(), &p.vm_id)?;
    context.phase("image_verify")?;
    let (image, image_bytes) = verified(context, p)?;
    context.phase("accel")?;
    let tools = Tools::find(host.policy.machines.programs.as_ref().map(path))?;
    let accel = select(context, &tools, p.accel)?;
    context.phase("admission")?;
    let size = Size {
        vcpus: p.vcpu_count,
        memory_mib: u64::from(p.memory_mib),
        disk: disk_size(&host, p, image_bytes)?,
        uid: None,
    };
    let user = reserve(context, &folder, size)?.for_accel(&host.roots.dev, accel);
    context.phase("overlay")?;
    overlay(context, &folder, &tools, &image, p, size.disk)?;
    context.phase("seed")?;
    let uuid = uuid()?;
    seed(context, &folder, &tools, p, &uuid)?;
    context.phase("start")?;
    let ssh_port = (p.network != VmNetwork::None).then(free_port).transpose()?;
    let guest = Guest {
        name: p.vm_id.as_str(),
        uuid: &uuid,
        accel,
        vcpus: p.vcpu_count,
        memory_mib: p.memory_mib,
        base: &image.path,
        format: p.image_format,
        network: p.network,
        ssh_port,
        folder: &folder,
    };
    hand_over(context, &folder, user)?;
    let machine = Machine {
        program: text(&tools.qemu)?,
        arguments: arguments(&guest),
        control: text(&folder.control())?,
        user: ids(user.0),
        cgroups: text(&host.roots.sys.join("fs/cgroup"))?,
        group: host.dir.group(p.vm_id.as_str()),
        memory: size
            .memory_mib
            .saturating_add(OVERHEAD_MIB.saturating_mul(2))
            .saturating_mul(1 << 20),
        // Half a processor beside the guest's, for QEMU's own work.
        cpu: p.vcpu_count.saturating_mul(100).saturating_add(50),
    };
    let handle = context.apply(Effect::Machine(machine.clone()))?;
    let Some(Trace::Process { pid, start }) = context.trace(handle) else {
        return Err(Failure::failed("QEMU left no trace"));
    };
    let now = Moment::now(&host.roots.proc)?;
    let lease = Lease::from(&now, p.lease_seconds);
    note(context, p, &uuid, &lease)?;
    let mut qmp = Qmp::connect(&folder.control(), PATIENCE).map_err(Failure::failed)?;
    qmp.execute("cont", None).map_err(Failure::failed)?;
    if let Some(line) = &p.ready_line {
        context.phase("ready")?;
        let limit = Duration::from_secs(u64::from(p.ready_timeout_seconds)).min(lease.left(&now));
        vm_ready::wait(context, &mut qmp, (pid, start), line, limit)?;
    }
    Ok(VmLaunched {
        vm_id: p.vm_id.clone(),
        uuid,
        pid,
        accel,
        ends_at: lease.end,
        ssh_port,
        limited_by: machine.limited_by(pid),
        timings: context.timings(),
    })
}

/// The image, open and of the digest that was asked for, and its size as a disk.
fn verified(context: &Context<'_>, p: &VmLaunch) -> Result<(Image, u64), Failure> {
    let allowed = &context.host().policy.machines.image_directories;
    let allowed: Vec<PathBuf> = allowed.iter().map(|d| PathBuf::from(d.as_str())).collect();
    let mut image = image::open(p.image_path.as_str(), &allowed)?;
    let stop = context.stop().clone();
    let bytes = image.verify(p.image_sha256.as_str(), p.image_format, &|| stop.check().is_err());
    context.check()?;
    Ok((image, bytes?))
}

pub(super) fn select(context: &Context<'_>, tools: &Tools, wanted: Accel) -> Result<Accel, Failure> {
    let host = context.host();
    let machines = &host.policy.machines;
    let kernel = machines.probe_kernel.as_ref().map(path);
    let memory = host.dir.path().join("accel.json");
    let _one = context.stop().lock(&PROBE)?;
    let mut prober = Prober::new(
        &host.roots.proc,
        &tools.qemu,
        kernel,
        Path::new(crate::machine::accel::BOOT),
        &memory,
    )?
    .running_as(
        match &machines.user {
            Some(name) => User::named(&host.roots.etc, name)?,
            None => User::own(machines.max_uid),
        },
        &host.roots.dev,
    );
    let wanted = match wanted {
        Accel::Auto => machines.accel,
        named => named,
    };
    Ok(prober.select(wanted, host.clock.seconds(), context.stop())?)
}

/// What whoever looks after the machine has to know; `public.` is for heartbeats and `/v1/capacity`.
fn note(context: &mut Context<'_>, p: &VmLaunch, uuid: &str, lease: &Lease) -> Result<(), Failure> {
    context.fact("uuid", json!(uuid))?;
    context.fact("lease", json!(lease))?;
    context.fact("public.vcpus", json!(p.vcpu_count))?;
    context.fact("public.memory_mib", json!(p.memory_mib))?;
    context.fact("public.ends_at", json!(lease.end))
}

/// A port of the loopback that is free now. Should somebody take it before QEMU does, the launch fails and says so.
fn free_port() -> Result<u16, Failure> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    free.map(|a| a.port())
        .map_err(|e| Failure::failed(format!("no port of the loopback is free: {e}")))
}

/// Version 4 (RFC 9562).
pub(super) fn uuid() -> Result<String, Failure> {
    let mut b: [u8; 16] = crate::random::bytes().map_err(Failure::failed)?;
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex = hex::encode(b);
    let parts = [
        hex.get(..8),
        hex.get(8..12),
        hex.get(12..16),
        hex.get(16..20),
        hex.get(20..),
    ];
    Ok(parts.map(Option::unwrap_or_default).join("-"))
}

fn path(text: &HostPath) -> &Path {
    Path::new(text.as_str())
}

impl From<image::ImageError> for Failure {
    fn from(e: image::ImageError) -> Self {
        use image::ImageError::{Digest, Format, Outside, Writable};
        let code = match e {
            Digest { .. } => Code::DigestMismatch,
            Outside { .. } | Writable { .. } => Code::PolicyDenied,
            Format { .. } => Code::InvalidField,
            _ => Code::TaskFailed,
        };
        Self::new(code, e)
    }
}
