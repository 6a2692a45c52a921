use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::text::{MacAddress, PciAddress, SlotId};

/// What a host needs for slices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prerequisites {
    /// Whether `/dev/kvm` exists; whether it works is another question.
    pub kvm_available: bool,
    /// Groups of devices; above 0 they can be handed through.
    pub iommu_group_count: u32,
    /// Of the kernel's command line: `intel_iommu=on`, `amd_iommu=on`, `iommu=pt`.
    pub iommu_kernel_args: Vec<String>,
    /// `vmx` and `svm`, where the CPUs have them.
    pub cpu_virtualization: Vec<String>,
    /// Each module that slices use, and whether it is there.
    pub loaded_modules: BTreeMap<String, bool>,
    /// Each program that slices use, and where it is; null: missing.
    pub required_commands: BTreeMap<String, Option<String>>,
    /// The network of slices.
    pub slice_network: SliceNetwork,
    /// Files that say that the host wants a reboot.
    pub reboot_required: Vec<String>,
}

/// The network of slices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceNetwork {
    /// Bridges of Open vSwitch; absent if it cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovs_bridges: Option<Vec<String>>,
    /// Whether a rule translates addresses of slices; absent if it cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat: Option<bool>,
    /// Whether the kernel forwards.
    pub ip_forwarding: bool,
    /// Netplan files that name an InfiniBand interface.
    pub ipoib_netplan: Vec<String>,
    /// Interfaces over InfiniBand.
    pub ipoib_interfaces: Vec<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuDevice {
    /// Where it is.
    pub pci_address: PciAddress,
    /// Vendor and device, hex.
    pub vendor_device: String,
    /// Its group; absent without IOMMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu_group: Option<u32>,
    /// Absent on a host with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u8>,
    /// The driver that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// A card of the fabric, or one of its virtual functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FabricDevice {
    /// Where it is.
    pub pci_address: PciAddress,
    /// Vendor and device, hex.
    pub vendor_device: String,
    /// Its group; absent without IOMMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu_group: Option<u32>,
    /// Absent on a host with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u8>,
    /// The driver that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Whether it is a virtual function.
    pub is_vf: bool,
    /// Of a virtual function: the card that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_function: Option<PciAddress>,
}

/// An NVMe namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NvmeDevice {
    /// The kernel's name.
    pub name: String,
    /// The name below /dev/disk/by-id that stays; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_id: Option<String>,
    /// Its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<PciAddress>,
    /// Absent on a host with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u8>,
    /// Bytes.
    pub bytes: u64,
    /// Why it is not a slice's: a mounted file system, swap, partitions, a member of an array.
    pub in_use: Vec<String>,
}

/// What could be let together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateSlot {
    /// Its name, drawn from its place.
    pub slot_id: SlotId,
    /// Its place.
    pub slot_index: u8,
    /// The GPU.
    pub pci_address: PciAddress,
    /// The fabric's virtual function, if there is one beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_device: Option<PciAddress>,
    /// The NVMe namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme_device: Option<String>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u8>,
    /// The same at every discovery.
    pub mac_address: MacAddress,
    /// The same at every discovery.
    pub private_ip: Ipv4Addr,
}

/// Whether the candidates can be let.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateSummary {
    /// How many there are.
    pub candidates: u32,
    /// Why they are not schedulable; empty: they are, once approved.
    pub blockers: Vec<String>,
}

/// Of `slice.topology_discover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// What the host needs.
    pub prerequisites: Prerequisites,
    /// NVIDIA's (vendor 0x10de).
    pub gpu_devices: Vec<GpuDevice>,
    /// Mellanox's (vendor 0x15b3).
    pub fabric_devices: Vec<FabricDevice>,
    /// NVMe namespaces.
    pub nvme_devices: Vec<NvmeDevice>,
    /// What could be let together.
    pub candidate_slots: Vec<CandidateSlot>,
    /// Whether they can be let.
    pub candidate_summary: CandidateSummary,
    /// Always true: discovery approves nothing.
    pub approval_required: bool,
}
