//! GPUs and cards of the fabric on the PCI bus, with the group, the NUMA node and the driver of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hpc_schema::task::PciAddress;
use hpc_schema::task::{FabricDevice, GpuDevice};

use crate::probe::{Roots, line, names_in};

const NVIDIA: &str = "0x10de";
const MELLANOX: &str = "0x15b3";
/// VGA and 3D controllers.
const GPU: [&str; 2] = ["0x0300", "0x0302"];
/// Network controllers: Ethernet, InfiniBand and their kin.
const FABRIC: &str = "0x02";
/// Bridges go along in a group and are handed to nobody.
const BRIDGE: &str = "0x06";

/// What the bus has.
#[derive(Debug, Default, Clone)]
pub(super) struct Bus {
    /// NVIDIA's GPUs by address.
    pub(super) gpus: Vec<GpuDevice>,
    /// Mellanox's cards and functions by address.
    pub(super) fabric: Vec<FabricDevice>,
    /// Devices of each group, without bridges.
    pub(super) groups: BTreeMap<u32, Vec<String>>,
}

pub(super) fn read(roots: &Roots) -> Bus {
    let dir = roots.sys.join("bus/pci/devices");
    let mut bus = Bus::default();
    for name in names_in(&dir) {
        let device = dir.join(&name);
        let Ok(pci_address) = name.parse::<PciAddress>() else {
            continue;
        };
        let class = line(&device.join("class")).unwrap_or_default();
        let vendor = line(&device.join("vendor")).unwrap_or_default();
        let iommu_group = target(&device.join("iommu_group")).and_then(|g| g.parse().ok());
        if let Some(group) = iommu_group
            && !class.starts_with(BRIDGE)
        {
            bus.groups.entry(group).or_default().push(name.clone());
        }
        let is_gpu = vendor == NVIDIA && GPU.iter().any(|c| class.starts_with(c));
        let is_fabric = vendor == MELLANOX && class.starts_with(FABRIC);
        if !is_gpu && !is_fabric {
            continue;
        }
        let vendor_device = format!(
            "{}:{}",
            bare(&vendor),
            bare(&line(&device.join("device")).unwrap_or_default())
        );
        let numa_node = numa(&device);
        let driver = target(&device.join("driver"));
        if is_gpu {
            bus.gpus.push(GpuDevice {
                pci_address,
                vendor_device,
                iommu_group,
                numa_node,
                driver,
            });
        } else {
            let physical_function = target(&device.join("physfn")).and_then(|p| p.parse().ok());
            bus.fabric.push(FabricDevice {
                pci_address,
                vendor_device,
                iommu_group,
                numa_node,
                driver,
                is_vf: physical_function.is_some(),
                physical_function,
            });
        }
    }
    bus
}

/// NUMA node of a device; none where the host has one, which the kernel tells as −1.
pub(super) fn numa(device: &Path) -> Option<u8> {
    line(&device.join("numa_node"))?.parse().ok()
}

/// Last part of where a link leads.
pub(super) fn target(link: &Path) -> Option<String> {
    let path = fs::read_link(link).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

fn bare(hex: &str) -> &str {
    hex.strip_prefix("0x").unwrap_or(hex)
}
