//! The image of a slice's machine: there, of its digest, and on the disk.

use std::path::{Path, PathBuf};

use super::checked::text;
use super::slice_work::Work;
use crate::machine::{Image, image};
use crate::slice::SliceTools;
use crate::task::context::Context;
use crate::task::effect::{Disk, Fetched};
use crate::task::failure::Failure;
use crate::task::images::{self, Reading};

/// Fetches the image if it is not there and it is said where it is; nobody takes it away while what comes back is held.
pub(super) fn present(c: &mut Context<'_>, work: &Work<'_>, tools: &SliceTools) -> Result<Reading, Failure> {
    let path = Path::new(work.p.image_path.as_str());
    let stop = c.stop().clone();
    let wait = || stop.check();
    images::present(path, &wait, || fetch(c, work, tools))
}

fn fetch(c: &mut Context<'_>, work: &Work<'_>, tools: &SliceTools) -> Result<(), Failure> {
    let Some(url) = &work.p.image_url else {
        return Ok(());
    };
    let path = Path::new(work.p.image_path.as_str());
    let machines = c.host().policy.machines.clone();
    // The folder is one of the allowed ones, before anything is put there.
    let below = |d: &&hpc_schema::task::HostPath| path.parent() == Some(Path::new(d.as_str()));
    if machines.image_directories.iter().find(below).is_none() {
        return Err(opened(c, work)
            .err()
            .unwrap_or_else(|| Failure::failed("the image is there")));
    }
    c.apply(Fetched {
        path: work.p.image_path.clone(),
        url: url.clone(),
        most: u64::from(machines.max_image_gib).saturating_mul(1 << 30),
        ca: machines.image_ca,
        curl: text(&tools.curl)?,
        prlimit: text(&tools.prlimit)?,
    })?;
    Ok(())
}

fn opened(c: &Context<'_>, work: &Work<'_>) -> Result<Image, Failure> {
    let allowed = &c.host().policy.machines.image_directories;
    let allowed: Vec<PathBuf> = allowed.iter().map(|d| PathBuf::from(d.as_str())).collect();
    Ok(image::open(work.p.image_path.as_str(), &allowed)?)
}

/// The image, of the digest that was asked for, whoever made it; and its size as a disk.
pub(super) fn verified(c: &Context<'_>, work: &Work<'_>) -> Result<(Image, u64), Failure> {
    let mut image = opened(c, work)?;
    let stop = c.stop().clone();
    let (sha256, format) = (work.p.image_sha256.as_str(), work.p.image_format);
    let bytes = image.verify(sha256, format, &|| stop.check().is_err());
    c.check()?;
    Ok((image, bytes?))
}

/// Writes the image onto the first slot's disk. From here on every slot's disk is wiped, whatever happens.
pub(super) fn write(
    c: &mut Context<'_>,
    work: &Work<'_>,
    tools: &SliceTools,
    image: &Image,
) -> Result<(), Failure> {
    let from = text(&image.path)?;
    let blkdiscard = text(&tools.blkdiscard)?;
    for (n, slot) in work.slots.iter().enumerate() {
        let format = work.p.image_format.as_str();
        let words = [
            "convert",
            "-n",
            "-t",
            "none",
            "-f",
            format,
            "-O",
            "raw",
            from.as_str(),
            slot.nvme_device.as_str(),
        ];
        let write = (n == 0).then(|| words.map(str::to_owned).into());
        c.apply(Disk {
            device: slot.nvme_device.clone(),
            write: write
                .map(|words| Ok::<_, Failure>((text(&tools.qemu_img)?, words)))
                .transpose()?,
            blkdiscard: blkdiscard.clone(),
        })?;
    }
    Ok(())
}
