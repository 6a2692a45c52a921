//! Which GPU, NVMe namespace and function of the fabric could be let together. Pure, and the same whenever it is asked.

use std::net::Ipv4Addr;

use hpc_schema::task::{CandidateSlot, FabricDevice, GpuDevice, NvmeDevice};
use hpc_schema::task::{MacAddress, SlotId};
use sha2::{Digest, Sha256};

use super::pci::Bus;

/// A node has at most so many slots.
const MOST: usize = 64;
/// Addresses of slices are behind the node's own: every node has the same network. The first ones are the node's.
const NETWORK: [u8; 3] = [10, 77, 0];
const FIRST_HOST: u8 = 16;

/// Candidates, and why some are none.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) candidates: Vec<CandidateSlot>,
    pub(super) blockers: Vec<String>,
}

/// One slot a GPU, in the order of addresses. Each takes the first namespace that nothing uses and the first virtual
/// function on its own NUMA node, or else on any.
pub(super) fn pair(bus: &Bus, disks: &[NvmeDevice], host: &str) -> Slots {
    let mut slots = Slots::default();
    if bus.gpus.is_empty() {
        slots
            .blockers
            .push("there is no NVIDIA GPU on the bus; slices are made of GPUs".to_owned());
    }
    let mut disks: Vec<&NvmeDevice> = disks
        .iter()
        .filter(|d| d.in_use.is_empty() && d.by_id.is_some())
        .collect();
    let mut functions: Vec<&FabricDevice> = bus.fabric.iter().filter(|f| f.is_vf).collect();
    for (gpu, index) in bus.gpus.iter().take(MOST).zip(0u8..) {
        let disk = nearest(&mut disks, gpu.numa_node, |d| d.numa_node);
        let function = nearest(&mut functions, gpu.numa_node, |f| f.numa_node);
        let at = gpu.pci_address.as_str();
        slots.blockers.extend(alone(bus, gpu));
        if disk.is_none() {
            slots.blockers.push(format!(
                "GPU {at}: no NVMe namespace is left that nothing uses and that has a stable name; add one, or free one (unmount it, take it out of its array)"
            ));
        }
        if function.is_none() && !bus.fabric.is_empty() {
            slots.blockers.push(format!(
                "GPU {at}: no virtual function of the fabric is left; write sriov_numvfs"
            ));
        }
        let (Some(slot_id), Some(mac_address)) = (name(at), mac(host, at)) else {
            continue;
        };
        slots.candidates.push(CandidateSlot {
            slot_id,
            slot_index: index,
            pci_address: gpu.pci_address.clone(),
            fabric_device: function.map(|f| f.pci_address.clone()),
            nvme_device: disk.and_then(|d| d.by_id.clone()),
            numa_node: gpu.numa_node,
            mac_address,
            private_ip: Ipv4Addr::new(
                NETWORK[0],
                NETWORK[1],
                NETWORK[2],
                FIRST_HOST.saturating_add(index),
            ),
        });
    }
    slots
}

/// Takes the first on the same node, or the first.
fn nearest<'a, T>(left: &mut Vec<&'a T>, node: Option<u8>, of: impl Fn(&T) -> Option<u8>) -> Option<&'a T> {
    let same = left.iter().position(|t| of(t) == node);
    let at = same.or((!left.is_empty()).then_some(0))?;
    Some(left.remove(at))
}

/// What shares the GPU's group goes with it: that must be the GPU's own functions.
fn alone(bus: &Bus, gpu: &GpuDevice) -> Option<String> {
    let at = gpu.pci_address.as_str();
    let group = gpu.iommu_group?;
    let slot = |address: &str| address.rsplit_once('.').map(|(slot, _)| slot.to_owned());
    let others: Vec<&str> = bus
        .groups
        .get(&group)?
        .iter()
        .filter(|d| slot(d) != slot(at))
        .map(String::as_str)
        .collect();
    (!others.is_empty()).then(|| {
        let others = others.join(", ");
        format!(
            "GPU {at} shares IOMMU group {group} with {others}; move one of them to another slot, or enable ACS in the firmware"
        )
    })
}

fn name(address: &str) -> Option<SlotId> {
    format!("slot-{}", address.replace(':', ".")).parse().ok()
}

/// QEMU's prefix and three bytes drawn from host and place.
fn mac(host: &str, address: &str) -> Option<MacAddress> {
    let digest = Sha256::new()
        .chain_update("hpc-slot-mac-v1\0")
        .chain_update(host)
        .chain_update("\0")
        .chain_update(address)
        .finalize();
    let tail: Vec<String> = digest.iter().take(3).map(|b| format!("{b:02x}")).collect();
    format!("52:54:00:{}", tail.join(":")).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(address: &str, numa: u8, group: u32) -> GpuDevice {
        GpuDevice {
            pci_address: address.parse().unwrap(),
            vendor_device: "10de:2330".to_owned(),
            iommu_group: Some(group),
            numa_node: Some(numa),
            driver: None,
        }
    }

    fn disk(name: &str, numa: u8, used: bool) -> NvmeDevice {
        NvmeDevice {
            name: name.to_owned(),
            by_id: Some(format!("/dev/disk/by-id/nvme-{name}")),
            pci_address: None,
            numa_node: Some(numa),
            bytes: 1,
            in_use: if used { vec!["x".to_owned()] } else { vec![] },
        }
    }

    #[test]
    fn each_gpu_has_what_is_near_it_and_nothing_twice() {
        let bus = Bus {
            gpus: vec![gpu("0000:3b:00.0", 0, 1), gpu("0000:b1:00.0", 1, 2)],
            groups: [
                (1, vec!["0000:3b:00.0".to_owned(), "0000:3b:00.1".to_owned()]),
                (2, vec!["0000:b1:00.0".to_owned(), "0000:b2:00.0".to_owned()]),
            ]
            .into(),
            fabric: Vec::new(),
        };
        let disks = [
            disk("nvme0n1", 1, false),
            disk("nvme1n1", 0, true),
            disk("nvme2n1", 0, false),
        ];
        let slots = pair(&bus, &disks, "host");
        let took: Vec<_> = slots
            .candidates
            .iter()
            .map(|c| c.nvme_device.clone().unwrap())
            .collect();
        assert_eq!(
            took,
            ["/dev/disk/by-id/nvme-nvme2n1", "/dev/disk/by-id/nvme-nvme0n1"]
        );
        assert_eq!(
            slots.blockers,
            [
                "GPU 0000:b1:00.0 shares IOMMU group 2 with 0000:b2:00.0; move one of them to another slot, or enable ACS in the firmware"
            ]
        );
        let again = pair(&bus, &disks, "host");
        assert_eq!(again.candidates, slots.candidates);
        let elsewhere = pair(&bus, &disks, "other");
        assert_ne!(
            elsewhere.candidates[0].mac_address,
            slots.candidates[0].mac_address
        );
        assert_eq!(slots.candidates[1].private_ip.to_string(), "10.77.0.17");
        let short = pair(&bus, &disks[..1], "host");
        assert!(
            short.blockers.iter().any(|b| b.contains("no NVMe namespace")),
            "{:?}",
            short.blockers
        );
        assert_eq!(short.candidates[1].nvme_device, None);
    }
}
