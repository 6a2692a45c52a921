//! What a slice's machine is told, and who is told of it: keys, seed, address, telemetry.

use std::path::Path;

use hpc_schema::code::Code;
use hpc_schema::task::HostPath;

use super::checked::text;
use super::slice_work::Work;
use crate::machine::writer;
use crate::slice::keys::SshKey;
use crate::slice::{Seed, SliceTools, mark, meta_data, telemetry, user_data};
use crate::task::context::{Context, Handle};
use crate::task::effect::{Directory, File, Produced};
use crate::task::failure::Failure;
use crate::task::host::Host;

/// The terminal's key and the machine's own.
pub(super) struct Keys {
    terminal: SshKey,
    machine: SshKey,
}

pub(super) fn folder(c: &mut Context<'_>, work: &Work<'_>) -> Result<(), Failure> {
    // libvirt's user has to get through to the seed; every file in it is its owner's alone.
    c.apply(Directory {
        path: text(work.folder.path())?,
        mode: 0o711,
    })?;
    Ok(())
}

/// Draws both keys: each machine has its own, and they end with it.
pub(super) fn keys(c: &mut Context<'_>, work: &Work<'_>) -> Result<Keys, Failure> {
    let terminal = SshKey::draw("virtengine-terminal").map_err(Failure::failed)?;
    let machine = SshKey::draw(work.p.vm_name.as_str()).map_err(Failure::failed)?;
    let known = format!("{} {}\n", work.first()?.private_ip, machine.bare());
    let secret = terminal.secret.clone().into_bytes();
    c.apply(File::new(text(&work.folder.terminal_key())?, 0o600, secret))?;
    c.apply(File::new(
        text(&work.folder.known_hosts())?,
        0o600,
        known.into_bytes(),
    ))?;
    Ok(Keys { terminal, machine })
}

pub(super) fn telemetry(c: &mut Context<'_>, work: &Work<'_>) -> Result<(), Failure> {
    let slices = c.host().policy.slices.clone();
    let path = telemetry_file(c.host(), work.p.vm_name.as_str())?;
    let mark = mark::words(&c.next_mark(), &c.host().dir.tag());
    let at = (slices.exporter_port, slices.statistics.as_ref());
    let text = telemetry::targets(work.p, work.first()?, at, (&work.uuid, &mark));
    c.apply(File::new(path, 0o644, text.into_bytes()))?;
    Ok(())
}

/// Where a machine stands as a target. Other nodes may have a machine of its name, and the same folder.
pub(super) fn telemetry_file(host: &Host, vm: &str) -> Result<HostPath, Failure> {
    let folder = host.policy.slices.telemetry.as_ref();
    let name = format!("slice-{vm}-{}.json", host.dir.tag());
    within(folder, &name, "slices.telemetry")
}

/// Where a machine's address is reserved.
pub(super) fn dhcp_file(host: &Host, vm: &str) -> Result<HostPath, Failure> {
    let folder = host.policy.slices.dhcp_hosts.as_ref();
    let name = format!("slice-{vm}-{}", host.dir.tag());
    within(folder, &name, "slices.dhcp_hosts")
}

fn within(folder: Option<&HostPath>, name: &str, key: &str) -> Result<HostPath, Failure> {
    let folder = folder.map(|f| Path::new(f.as_str())).filter(|f| f.is_dir());
    let folder = folder.ok_or_else(|| {
        let what = format!("{key} of the policy is no folder of this host; make it, or name another");
        Failure::new(Code::NotSupported, what)
    })?;
    text(&folder.join(name))
}

/// The documents of the seed; they are on the disk only while it is made.
pub(super) fn files(c: &mut Context<'_>, work: &Work<'_>, keys: &Keys) -> Result<Vec<Handle>, Failure> {
    let driver = c.host().policy.slices.driver_packages.clone();
    let gpus = work.slots.iter().any(|s| s.pci_address.is_some());
    let seed = Seed {
        uuid: &work.uuid,
        terminal: &keys.terminal,
        machine: &keys.machine,
        driver: if gpus { &driver } else { &[] },
    };
    let documents = [
        ("user-data", user_data(work.p, seed)),
        ("meta-data", meta_data(work.p, &work.uuid)),
    ];
    documents
        .into_iter()
        .map(|(name, bytes)| {
            c.apply(File::new(
                text(&work.folder.file(name))?,
                0o600,
                bytes.into_bytes(),
            ))
        })
        .collect()
}

pub(super) fn iso(
    c: &mut Context<'_>,
    work: &Work<'_>,
    tools: &SliceTools,
    documents: Vec<Handle>,
) -> Result<(), Failure> {
    c.apply(Produced {
        path: text(&work.folder.seed())?,
        mode: 0o600,
        program: text(&tools.iso)?,
        arguments: writer(&tools.iso, work.folder.path()),
        limit_seconds: 60,
    })?;
    documents.into_iter().try_for_each(|handle| c.undo(handle))
}

/// One line of dnsmasq's `--dhcp-hostsdir`; read at once.
pub(super) fn dhcp(c: &mut Context<'_>, work: &Work<'_>) -> Result<(), Failure> {
    let path = dhcp_file(c.host(), work.p.vm_name.as_str())?;
    let first = work.first()?;
    let mark = mark::words(&c.next_mark(), &c.host().dir.tag());
    let line = format!("# {mark}\n{},{},infinite\n", first.mac_address, first.private_ip);
    c.apply(File::new(path, 0o644, line.into_bytes()))?;
    Ok(())
}
