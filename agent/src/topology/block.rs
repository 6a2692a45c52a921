//! NVMe namespaces: their stable names, their controllers, and what uses them.

use std::fs;
use std::path::Path;

use hpc_schema::task::NvmeDevice;
use hpc_schema::task::PciAddress;

use super::pci::{numa, target};
use crate::probe::{Roots, line, names_in};

/// Of `/sys/block/*/size`, whatever the device's own blocks are.
const SECTOR: u64 = 512;
/// Longest table of mounts that is read.
const TABLE: u64 = 4 << 20;

pub(super) fn namespaces(roots: &Roots) -> Vec<NvmeDevice> {
    let block = roots.sys.join("block");
    let mounts = table(&roots.proc.join("self/mounts"));
    let swaps = table(&roots.proc.join("swaps"));
    names_in(&block)
        .into_iter()
        .filter(|name| is_namespace(name))
        .map(|name| {
            let dir = block.join(&name);
            let address = controller(&dir);
            let pci = address
                .as_ref()
                .map(|a| roots.sys.join("bus/pci/devices").join(a.as_str()));
            NvmeDevice {
                by_id: by_id(roots, &name),
                numa_node: numa(&dir.join("device")).or_else(|| numa(&pci?)),
                pci_address: address,
                bytes: line(&dir.join("size"))
                    .and_then(|s| s.parse::<u64>().ok())
                    .unwrap_or(0)
                    .saturating_mul(SECTOR),
                in_use: uses(&dir, &name, &mounts, &swaps),
                name,
            }
        })
        .collect()
}

/// `nvme0n1`: not a partition, not one path of several (`nvme0c1n1`).
fn is_namespace(name: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix("nvme")
        .and_then(|rest| rest.split_once('n'))
        .is_some_and(|(controller, namespace)| digits(controller) && digits(namespace))
}

/// Address of its controller; with native multipath that of the first path.
fn controller(dir: &Path) -> Option<PciAddress> {
    let device = dir.join("device");
    let own = line(&device.join("address")).and_then(|a| a.parse().ok());
    own.or_else(|| {
        names_in(&device)
            .iter()
            .filter(|n| n.starts_with("nvme"))
            .find_map(|n| line(&device.join(n).join("address"))?.parse().ok())
    })
}

/// The name that stays whatever else is plugged in: that of model and serial number before that of the namespace's id.
fn by_id(roots: &Roots, name: &str) -> Option<String> {
    let dir = roots.dev.join("disk/by-id");
    let mut names: Vec<String> = names_in(&dir)
        .into_iter()
        .filter(|link| link.starts_with("nvme-") && target(&dir.join(link)).as_deref() == Some(name))
        .collect();
    names.sort_by_key(|n| {
        (
            n.starts_with("nvme-eui.") || n.starts_with("nvme-nvme."),
            n.clone(),
        )
    });
    names.first().map(|n| format!("/dev/disk/by-id/{n}"))
}

fn uses(dir: &Path, name: &str, mounts: &str, swaps: &str) -> Vec<String> {
    let mut uses = Vec::new();
    let ours = |device: &str| {
        device
            .strip_prefix("/dev/")
            .and_then(|d| d.strip_prefix(name))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('p'))
    };
    for line in mounts.lines() {
        let mut words = line.split(' ');
        if let (Some(device), Some(place)) = (words.next(), words.next())
            && ours(device)
        {
            uses.push(format!("{device} is mounted on {place}"));
        }
    }
    for device in swaps.lines().skip(1).filter_map(|l| l.split_whitespace().next()) {
        if ours(device) {
            uses.push(format!("{device} is swap"));
        }
    }
    for part in names_in(dir) {
        if !dir.join(&part).join("partition").is_file() {
            continue;
        }
        uses.push(format!("has the partition {part}"));
        uses.extend(holders(&dir.join(&part), &part));
    }
    uses.extend(holders(dir, name));
    uses
}

fn holders(dir: &Path, name: &str) -> impl Iterator<Item = String> {
    let name = name.to_owned();
    names_in(&dir.join("holders"))
        .into_iter()
        .map(move |holder| format!("{name} is part of {holder}"))
}

fn table(path: &Path) -> String {
    crate::files::read_text(path, TABLE).unwrap_or_else(|_| {
        // A path that is no UTF-8 is no reason to call a mounted disk free.
        fs::read(path).map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_namespaces_count() {
        assert!(is_namespace("nvme0n1") && is_namespace("nvme12n34"));
        for other in ["nvme0n1p1", "nvme0c0n1", "nvme0", "sda", "nvmen1", "nvme0n"] {
            assert!(!is_namespace(other), "{other}");
        }
    }
}
