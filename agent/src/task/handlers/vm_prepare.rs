//! What a machine is made of before QEMU is started: its room, its disk, its seed, its user's rights.

use std::path::Path;

use hpc_schema::code::Code;
use hpc_schema::task::VmLaunch;

use super::admission;
use super::checked::{most, text};
use crate::files::at;
use crate::machine::admission::Ask;
use crate::machine::{Folder, Image, Size, Tools, User, documents, user_ids, writer};
use crate::task::context::Context;
use crate::task::effect::{Directory, Effect, File, Produced};
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::users::{entries, free_id, groups, processes, taken_ids};

pub(super) fn disk_size(host: &Host, p: &VmLaunch, image: u64) -> Result<u64, Failure> {
    const GIB: u64 = 1 << 30;
    let asked = p.disk_gib.map_or(image, |g| u64::from(g).saturating_mul(GIB));
    if asked < image {
        let what = format!(
            "disk_gib: the image alone has {image} bytes; ask for at least {} GiB",
            image.div_ceil(GIB)
        );
        return Err(Failure::new(Code::InvalidField, what));
    }
    let bound = u64::from(host.policy.machines.max_disk_gib);
    most("disk_gib", asked.div_ceil(GIB), bound, "max_disk_gib")?;
    Ok(asked)
}

/// Makes the machine's folder with what it may take, if there is room for it; gives whom it runs as.
pub(super) fn reserve(context: &mut Context<'_>, folder: &Folder, mut size: Size) -> Result<User, Failure> {
    let host = context.host().clone();
    let machines = host.dir.machines();
    let ask = Ask {
        vcpus: size.vcpus,
        memory_mib: size.memory_mib,
        disk: size.disk,
    };
    let _one = admission::admit(context, ask, Some(host.policy.machines.max_count))?
        .map_err(|full| Failure::new(Code::ResourceBusy, full))?;
    context.apply(Effect::Directory(Directory {
        path: text(folder.path())?,
        mode: 0o700,
    }))?;
    let user = match &host.policy.machines.user {
        Some(name) => User::named(&host.roots.etc, name)?,
        None => {
            let id = draw(&host, &machines)?;
            size.uid = Some(id);
            User::own(id)
        }
    };
    let bytes = serde_json::to_vec(&size).map_err(Failure::failed)?;
    context.apply(Effect::File(File::new(text(&folder.size())?, 0o600, bytes)))?;
    Ok(user)
}

/// An id that no user, group, machine or process has. The last one is the probe's.
fn draw(host: &Host, machines: &Path) -> Result<u32, Failure> {
    let bounds = &host.policy.machines;
    let mut taken = taken_ids(&entries(&host.roots.etc)?, &groups(&host.roots.etc)?);
    taken.extend(user_ids(machines));
    // No range of the site's reaches down to users of the system.
    let mut least = bounds.min_uid.max(1000);
    while let Some(id) = free_id(least, bounds.max_uid.saturating_sub(1), &taken) {
        if processes(&host.roots.proc, id).is_empty() {
            return Ok(id);
        }
        least = id.saturating_add(1);
    }
    let what = "all ids from machines.min_uid to machines.max_uid of the policy are in use";
    Err(Failure::new(Code::ResourceBusy, what))
}

pub(super) fn overlay(
    context: &mut Context<'_>,
    folder: &Folder,
    tools: &Tools,
    image: &Image,
    p: &VmLaunch,
    bytes: u64,
) -> Result<(), Failure> {
    let base = text(&image.path)?;
    // -u: what the base is was read by us; qemu-img shall not look for it.
    let words = [
        "create",
        "-q",
        "-u",
        "-f",
        "qcow2",
        "-F",
        p.image_format.as_str(),
        "-b",
        base.as_str(),
        "{}",
    ];
    let mut arguments: Vec<String> = words.map(str::to_owned).into();
    arguments.push(bytes.to_string());
    context.apply(Effect::Produced(Produced {
        path: text(&folder.disk())?,
        mode: 0o600,
        program: text(&tools.image)?,
        arguments,
        limit_seconds: 60,
    }))?;
    Ok(())
}

pub(super) fn seed(
    context: &mut Context<'_>,
    folder: &Folder,
    tools: &Tools,
    p: &VmLaunch,
    uuid: &str,
) -> Result<(), Failure> {
    let (user, meta) = documents(p, uuid);
    let mut made = Vec::new();
    for (name, bytes) in [("user-data", user), ("meta-data", meta)] {
        let path = text(&folder.file(name))?;
        made.push(context.apply(Effect::File(File::new(path, 0o600, bytes.into_bytes())))?);
    }
    context.apply(Effect::Produced(Produced {
        path: text(&folder.seed())?,
        mode: 0o600,
        program: text(&tools.iso)?,
        arguments: writer(&tools.iso, folder.path()),
        limit_seconds: 60,
    }))?;
    made.into_iter().try_for_each(|handle| context.undo(handle))
}

/// Gives QEMU's user what is QEMU's.
pub(super) fn hand_over(context: &mut Context<'_>, folder: &Folder, user: User) -> Result<(), Failure> {
    context.apply(Effect::Directory(Directory {
        path: text(&folder.run())?,
        mode: 0o700,
    }))?;
    if let Some(owner) = user.0 {
        for path in [folder.run(), folder.disk(), folder.seed()] {
            std::os::unix::fs::lchown(&path, Some(owner.uid), Some(owner.gid))
                .map_err(at("change owner of", &path))?;
        }
        // All secrets are in files of their own by now; QEMU has to get through.
        let through = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(folder.path(), through).map_err(at("change mode of", folder.path()))?;
    }
    Ok(())
}
