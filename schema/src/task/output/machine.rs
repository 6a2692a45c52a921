use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::params::{Accel, SliceSlot};
use crate::task::text::{AllocationId, HostPath, PciAddress, Sha256Hex, SlotId, VmId};

/// Milliseconds of each phase.
pub type Timings = BTreeMap<String, u64>;

/// Of `vm.launch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmLaunched {
    /// The machine.
    pub vm_id: VmId,
    /// Its own mark.
    pub uuid: String,
    /// Its process.
    pub pid: u32,
    /// What carries its instructions out: never `auto`.
    pub accel: Accel,
    /// UNIX seconds at which it ends.
    pub ends_at: u64,
    /// Port on this host's loopback that is the guest's port 22.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_port: Option<u16>,
    /// Control groups that hold it: `memory`, `cpu`, `pids`; fewer where the host has fewer.
    pub limited_by: Vec<String>,
    /// Milliseconds of each phase.
    pub timings: Timings,
}

/// What was looked at after a machine was taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmProof {
    /// No process of it, by number and start and by its mark.
    pub process_gone: bool,
    /// No disk.
    pub disk_gone: bool,
    /// No seed.
    pub seed_gone: bool,
    /// No monitor.
    pub sockets_gone: bool,
    /// No folder.
    pub folder_gone: bool,
    /// No control group.
    pub group_gone: bool,
    /// No lease.
    pub lease_gone: bool,
}

impl VmProof {
    /// Whether nothing is left.
    #[must_use]
    pub fn all(&self) -> bool {
        let Self {
            process_gone,
            disk_gone,
            seed_gone,
            sockets_gone,
            folder_gone,
            group_gone,
            lease_gone,
        } = *self;
        process_gone && disk_gone && seed_gone && sockets_gone && folder_gone && group_gone && lease_gone
    }
}

/// Of `vm.terminate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmTerminated {
    /// The machine.
    pub vm_id: VmId,
    /// Whether there was one.
    pub existed: bool,
    /// Whether it had to be killed.
    pub hard_stopped: bool,
    /// Seen afterwards: nothing is left.
    pub verified: bool,
    /// What was looked at.
    pub proof: VmProof,
    /// Milliseconds of each phase.
    pub timings: Timings,
}

/// How the guest was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Whether SSH let us in.
    pub ssh: bool,
    /// Whether the ready file was there.
    pub ready_file: bool,
    /// Milliseconds from the start to both.
    pub ready_ms: u64,
}

/// What was measured in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Performance {
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
    /// Lanes of each GPU, by its address in the guest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_pcie_width: BTreeMap<String, u8>,
    /// Whether the fabric's link is up; absent without fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_link: Option<bool>,
}

/// Of `slice.vm_provision`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceVmProvisioned {
    /// What the tenant was given.
    pub allocation_id: AllocationId,
    /// The machine.
    pub vm_name: VmId,
    /// Who may log in.
    pub default_user: String,
    /// Where.
    pub private_ip: std::net::Ipv4Addr,
    /// Always 22.
    pub ssh_port: u16,
    /// How many slots it has.
    pub slot_count: u32,
    /// How it was reached.
    pub readiness: Readiness,
    /// What was measured.
    pub performance: Performance,
    /// Milliseconds of each of the 17 phases.
    pub timings: Timings,
    /// Always false: no display is open to anybody.
    pub raw_vnc: bool,
    /// Always `gateway_required`.
    pub console_model: String,
    /// What carries its instructions out: never `auto`.
    pub accel: Accel,
    /// The first sample of it.
    pub telemetry: GuestSample,
}

/// The first sample of a machine that is scraped from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestSample {
    /// Processor time as libvirt tells it, milliseconds.
    pub cpu_time_ms: u64,
    /// Memory that it has as libvirt tells it, KiB.
    pub memory_kib: u64,
    /// Series that the guest's own exporter gave; absent where the site asks none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exporter_series: Option<u64>,
    /// Series of libvirt's statistics at the target that the agent's local interface is; 0 if it was silent, absent where it
    /// has none, or asks for credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics_series: Option<u64>,
}

/// What was seen of a device after it was given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceProof {
    /// Its stable name below /dev.
    pub device: HostPath,
    /// Bytes of the whole device.
    pub bytes: u64,
    /// Bytes read back after the wipe.
    pub sampled_bytes: u64,
    /// Whether all of them were zero.
    pub zero: bool,
    /// SHA-256 over the offsets that were read (each u64, big-endian), so that the samples can be drawn again.
    pub sample_plan: Sha256Hex,
}

/// What was checked after a machine was taken down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CleanupProof {
    /// No domain of that name.
    pub domain_gone: bool,
    /// No lease of its slots.
    pub leases_gone: bool,
    /// No DHCP reservation.
    pub dhcp_gone: bool,
    /// No telemetry target.
    pub telemetry_gone: bool,
    /// No folder, overlay or seed.
    pub files_gone: bool,
    /// Devices that are back on vfio-pci.
    pub devices_rebound: Vec<PciAddress>,
    /// What was wiped.
    pub wiped: Vec<DeviceProof>,
}

impl CleanupProof {
    /// What of this slot it does not prove; none if the slot may be let again.
    #[must_use]
    pub fn lacks(&self, slot: &SliceSlot) -> Option<String> {
        let flags = [
            (self.domain_gone, "the domain's end"),
            (self.leases_gone, "the end of its lease"),
            (self.dhcp_gone, "the end of its DHCP reservation"),
            (self.telemetry_gone, "the end of its telemetry"),
            (self.files_gone, "the end of its files"),
        ];
        if let Some((_, what)) = flags.into_iter().find(|(good, _)| !good) {
            return Some(what.to_owned());
        }
        if let Some(lost) = slot.functions().find(|f| !self.devices_rebound.contains(f)) {
            return Some(format!("{lost} on vfio-pci"));
        }
        let wiped = self.wiped.iter().any(|d| {
            d.device == slot.nvme_device
                && d.zero
                && d.bytes > 0
                && d.sampled_bytes >= d.bytes.min(LEAST_SAMPLE)
        });
        (!wiped).then(|| format!("{} wiped", slot.nvme_device))
    }
}

/// Bytes of a device that must have been read back, if it has so many.
const LEAST_SAMPLE: u64 = 1 << 20;

/// Of `slice.vm_release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceVmReleased {
    /// What the tenant had been given.
    pub allocation_id: AllocationId,
    /// The machine.
    pub vm_name: VmId,
    /// Whether there was one.
    pub existed: bool,
    /// Whether it had to be killed.
    pub hard_stopped: bool,
    /// Its slots.
    pub slots: Vec<SlotId>,
    /// Whether its slots may be let again at once.
    pub slots_free: bool,
    /// What was checked.
    pub cleanup: CleanupProof,
    /// Milliseconds of each phase.
    pub timings: Timings,
}
