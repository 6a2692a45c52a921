use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vm::{Accel, ImageFormat};
use super::{Check, list, within};
use crate::task::text::{
    AllocationId, BridgeName, HostPath, HttpsUrl, MacAddress, PciAddress, Sha256Hex, SlotId, SshPublicKey,
    UserName, VmId,
};

/// Who brings the GPU's driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DriverStrategy {
    /// cloud-init installs it at the first boot.
    #[default]
    #[serde(rename = "cloud-init")]
    CloudInit,
    /// The image has it.
    #[serde(rename = "preinstalled")]
    Preinstalled,
    /// Nobody.
    #[serde(rename = "none")]
    None,
}

/// One slot of the machine: a GPU, a fabric function, an NVMe namespace, cores and memory beside them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceSlot {
    /// The slot.
    pub slot_id: SlotId,
    /// Its place among the node's slots.
    #[schemars(range(max = 63))]
    pub slot_index: u8,
    /// The GPU; absent in a slot without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<PciAddress>,
    /// The fabric's virtual function; absent in a slot without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_device: Option<PciAddress>,
    /// Whole block device that the slot owns, by a stable name below /dev.
    pub nvme_device: HostPath,
    /// Where GPU and memory are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub numa_node: Option<u8>,
    /// Virtual CPUs.
    #[serde(default = "default_vcpus")]
    #[schemars(range(min = 1, max = 1024))]
    pub vcpu_count: u32,
    /// Memory, MiB.
    #[serde(default = "default_memory")]
    #[schemars(range(min = 64, max = 16_777_216))]
    pub memory_mib: u32,
    /// Of the machine's network card.
    pub mac_address: MacAddress,
    /// Reserved for that card.
    pub private_ip: Ipv4Addr,
}

impl SliceSlot {
    /// The PCI functions that the slot hands through.
    pub fn functions(&self) -> impl Iterator<Item = &PciAddress> {
        self.pci_address.iter().chain(&self.fabric_device)
    }

    /// # Errors
    /// The member that is out of its bounds, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        within("slots.slot_index", self.slot_index, 0..=63)?;
        within("slots.vcpu_count", self.vcpu_count, 1..=1024)?;
        within("slots.memory_mib", self.memory_mib, 64..=16_777_216)?;
        if self.nvme_device.as_str().starts_with("/dev/") {
            return Ok(());
        }
        Err(("slots.nvme_device", "must be below /dev".to_owned()))
    }
}

fn default_vcpus() -> u32 {
    12
}

fn default_memory() -> u32 {
    65_536
}

/// What the machine must reach before it is handed over; absent: not asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerformanceBars {
    /// Events of the CPU test a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_events_per_second: Option<u64>,
    /// Memory copied, MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib_per_second: Option<u64>,
    /// Boot disk read, MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_mib_per_second: Option<u64>,
    /// Boot disk written, MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_write_mib_per_second: Option<u64>,
    /// Lanes of each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_pcie_width: Option<u8>,
}

/// Of `slice.vm_provision` (specification 003).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceVmProvision {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The machine.
    pub vm_name: VmId,
    /// Image, in a directory that the node's policy allows.
    pub image_path: HostPath,
    /// Where the image is fetched from if it is missing, from a host that the node's policy allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_url: Option<HttpsUrl>,
    /// Its digest, checked before each use.
    pub image_sha256: Sha256Hex,
    /// What it is; never guessed.
    #[serde(default)]
    pub image_format: ImageFormat,
    /// Whether the image is the operator's own; the digest is checked all the same.
    #[serde(default)]
    pub image_trusted: bool,
    /// Who brings the GPU's driver.
    #[serde(default)]
    pub driver_strategy: DriverStrategy,
    /// The user that cloud-init makes.
    pub default_username: UserName,
    /// Who may log in.
    #[schemars(length(min = 1, max = 32))]
    pub ssh_public_keys: Vec<SshPublicKey>,
    /// Its slots.
    #[schemars(length(min = 1, max = 16))]
    pub slots: Vec<SliceSlot>,
    /// The bridge that its card hangs on.
    pub ovs_bridge: BridgeName,
    /// How instructions are carried out.
    #[serde(default)]
    pub accel: Accel,
    /// Seconds in which a guest may shut down when this machine is taken down again.
    #[serde(default = "default_grace")]
    #[schemars(range(min = 30, max = 900))]
    pub graceful_timeout_seconds: u32,
    /// Seconds in which the guest must say that it is ready.
    #[serde(default = "default_ready")]
    #[schemars(range(min = 30, max = 3600))]
    pub ready_timeout_seconds: u32,
    /// What it must reach.
    #[serde(default)]
    pub performance: PerformanceBars,
}

fn default_grace() -> u32 {
    120
}

fn default_ready() -> u32 {
    900
}

impl Check for SliceVmProvision {
    fn check(&self) -> Result<(), (&'static str, String)> {
        within(
            "graceful_timeout_seconds",
            self.graceful_timeout_seconds,
            30..=900,
        )?;
        within("ready_timeout_seconds", self.ready_timeout_seconds, 30..=3600)?;
        list("ssh_public_keys", &self.ssh_public_keys, 1..=32)?;
        slots(&self.slots, 1..=16)
    }
}

/// Slots of one machine: nothing is named twice.
fn slots(all: &[SliceSlot], bounds: std::ops::RangeInclusive<usize>) -> Result<(), (&'static str, String)> {
    list("slots", all, bounds)?;
    let mut seen = BTreeSet::new();
    for slot in all {
        slot.check()?;
        let index = slot.slot_index.to_string();
        let own = [
            Some(slot.slot_id.as_str()),
            Some(index.as_str()),
            Some(slot.nvme_device.as_str()),
            Some(slot.mac_address.as_str()),
        ];
        let functions = slot.functions().map(|a| (own.len(), a.as_str().to_owned()));
        let named = own
            .into_iter()
            .enumerate()
            .filter_map(|(place, text)| Some((place, text?.to_owned())));
        for each in named.chain(functions) {
            if !seen.insert(each) {
                return Err(("slots", "name a slot, device or address twice".to_owned()));
            }
        }
    }
    Ok(())
}

/// Of `slice.vm_release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceVmRelease {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The machine.
    pub vm_name: VmId,
    /// Seconds in which the guest may shut down before it is killed.
    #[serde(default = "default_grace")]
    #[schemars(range(min = 30, max = 900))]
    pub graceful_timeout_seconds: u32,
    /// Whether the devices are wiped; without it the slots are quarantined.
    #[serde(default = "yes")]
    pub wipe: bool,
    /// Slots that are to be wiped and proven clean though no machine of ours has them: new ones, and those of whose
    /// state nobody knows. Not beside a machine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub slots: Vec<SliceSlot>,
}

fn yes() -> bool {
    true
}

impl Check for SliceVmRelease {
    fn check(&self) -> Result<(), (&'static str, String)> {
        within(
            "graceful_timeout_seconds",
            self.graceful_timeout_seconds,
            30..=900,
        )?;
        if !self.wipe && !self.slots.is_empty() {
            return Err(("slots", "are named to be wiped, and wipe is false".to_owned()));
        }
        slots(&self.slots, 0..=16)
    }
}
