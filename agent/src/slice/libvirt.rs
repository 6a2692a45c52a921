//! libvirt by `virsh` and `virt-install`: absolute path, argument vector. What exists is read from lists of UUIDs, never
//! from the words of an error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hpc_schema::task::{Accel, SliceSlot, SliceVmProvision};

use crate::task::Stop;
use crate::task::exec::{ExecError, Output, Program};

/// The system's own libvirt.
const CONNECT: &str = "qemu:///system";
/// How long it may take for an answer unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of one machine's statistics that are read.
const STATISTICS: usize = 4 << 20;

/// The system's libvirt.
#[derive(Debug, Clone)]
pub struct Libvirt {
    virsh: PathBuf,
    patience: Duration,
}

/// What libvirt does with a domain; it has ended or is gone already: good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The power button.
    Shutdown,
    /// No further, until somebody says so.
    Suspend,
    /// Now.
    Destroy,
    /// Forgotten with its NVRAM.
    Undefine,
    /// Forgotten where it has none, or an older libvirt does not know of it.
    UndefinePlain,
}

impl Libvirt {
    /// By this `virsh`.
    #[must_use]
    pub fn new(virsh: &Path) -> Self {
        Self {
            virsh: virsh.to_owned(),
            patience: PATIENCE,
        }
    }

    /// Each answer may take so long.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn program(&self) -> Program {
        Program::new(&self.virsh)
            .flag("--quiet")
            .flag("--connect")
            .flag(CONNECT)
            .within(self.patience)
    }

    fn list(&self, flags: &[&'static str], stop: &Stop) -> Result<Vec<String>, ExecError> {
        let program = self.program().flag("list");
        let said = flags
            .iter()
            .fold(program, |p, f| p.flag(f))
            .keeping(4 << 20)
            .run(stop)?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        Ok(text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// Whether there is such a domain, running or not.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub fn exists(&self, uuid: &str, stop: &Stop) -> Result<bool, ExecError> {
        Ok(self.list(&["--all", "--uuid"], stop)?.iter().any(|u| u == uuid))
    }

    /// Whether somebody's domain has this name.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub fn named(&self, name: &str, stop: &Stop) -> Result<bool, ExecError> {
        Ok(self.list(&["--all", "--name"], stop)?.iter().any(|n| n == name))
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub fn runs(&self, uuid: &str, stop: &Stop) -> Result<bool, ExecError> {
        Ok(self.running(stop)?.iter().any(|u| u == uuid))
    }

    /// UUIDs of all that run.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub fn running(&self, stop: &Stop) -> Result<Vec<String>, ExecError> {
        self.list(&["--uuid"], stop)
    }

    /// Tells it something.
    ///
    /// # Errors
    /// It refuses.
    pub fn tell(&self, uuid: &str, word: Word, stop: &Stop) -> Result<Output, ExecError> {
        let program = self.program();
        let program = match word {
            Word::Shutdown => program.flag("shutdown").value(uuid)?.flag("--mode").flag("acpi"),
            Word::Suspend => program.flag("suspend").value(uuid)?,
            Word::Destroy => program.flag("destroy").value(uuid)?,
            Word::Undefine => {
                let program = program.flag("undefine").value(uuid)?;
                program
                    .flag("--nvram")
                    .flag("--managed-save")
                    .flag("--snapshots-metadata")
            }
            Word::UndefinePlain => program.flag("undefine").value(uuid)?,
        };
        program.run(stop)
    }

    /// Ends it if it runs, and forgets it. Good if there is none.
    ///
    /// # Errors
    /// libvirt does not answer, or does not do it.
    pub fn forget(&self, uuid: &str, stop: &Stop) -> Result<(), ExecError> {
        if self.runs(uuid, stop)? {
            let destroyed = self.tell(uuid, Word::Destroy, stop);
            // It may have ended by itself meanwhile.
            if self.runs(uuid, stop)? {
                destroyed?;
            }
        }
        if self.exists(uuid, stop)?
            && self.tell(uuid, Word::Undefine, stop).is_err()
            && self.exists(uuid, stop)?
        {
            self.tell(uuid, Word::UndefinePlain, stop)?;
        }
        Ok(())
    }

    /// Every domain, running or not, with its description: there the mark of one that a task has made stands.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub fn described(&self, stop: &Stop) -> Result<Vec<(String, String)>, ExecError> {
        let mut all = Vec::new();
        for uuid in self.list(&["--all", "--uuid"], stop)? {
            // One that is gone meanwhile has none.
            let said = self.program().flag("desc").value(&uuid)?.ask(stop)?;
            let text = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            all.push((uuid, text));
        }
        Ok(all)
    }

    /// Its statistics, as text.
    ///
    /// # Errors
    /// It refuses.
    pub fn stats(&self, uuid: &str, stop: &Stop) -> Result<String, ExecError> {
        let program = self
            .program()
            .flag("domstats")
            .flag("--cpu-total")
            .flag("--balloon")
            .flag("--vcpu")
            .flag("--block")
            .flag("--interface")
            // Some kilobytes for each CPU, before disks and cards.
            .keeping(STATISTICS);
        let said = program.value(uuid)?.run(stop)?;
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }
}

/// A machine as `virt-install` makes it.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// Its parameters.
    pub p: &'a SliceVmProvision,
    /// Its slots, in the order of their places; the first one's disk is booted from.
    pub slots: &'a [&'a SliceSlot],
    /// Its own mark.
    pub uuid: &'a str,
    /// What carries its instructions out.
    pub accel: Accel,
    /// What cloud-init reads.
    pub seed: &'a Path,
}

/// Arguments of `virt-install`. Every value of a task in it is a checked text without a comma.
#[must_use]
pub fn arguments(g: &Guest<'_>) -> Vec<String> {
    let vcpus: u32 = g.slots.iter().fold(0, |n, s| n.saturating_add(s.vcpu_count));
    let memory: u64 = g
        .slots
        .iter()
        .fold(0, |n, s| n.saturating_add(u64::from(s.memory_mib)));
    let (kind, cpu) = match g.accel {
        Accel::Kvm => ("kvm", "host-passthrough"),
        _ => ("qemu", "mode=maximum"),
    };
    let mut all: Vec<String> = Vec::new();
    let mut put = |flag: &str, value: String| all.extend([flag.to_owned(), value]);
    put("--connect", CONNECT.to_owned());
    put("--name", g.p.vm_name.to_string());
    put("--uuid", g.uuid.to_owned());
    put("--memory", memory.to_string());
    put("--vcpus", vcpus.to_string());
    put("--virt-type", kind.to_owned());
    put("--cpu", cpu.to_owned());
    put("--machine", "q35".to_owned());
    put("--osinfo", "detect=off,require=off".to_owned());
    for slot in g.slots {
        put(
            "--disk",
            format!(
                "path={},format=raw,bus=virtio,cache=none,discard=unmap",
                slot.nvme_device
            ),
        );
    }
    seed(&mut put, g);
    if let Some(first) = g.slots.first() {
        let (bridge, mac) = (&g.p.ovs_bridge, &first.mac_address);
        put(
            "--network",
            format!("bridge={bridge},virtualport.type=openvswitch,mac.address={mac},model.type=virtio"),
        );
    }
    for function in g.slots.iter().flat_map(|s| s.functions()) {
        let name: String = function
            .as_str()
            .chars()
            .map(|c| if c.is_ascii_hexdigit() { c } else { '_' })
            .collect();
        // Bound to vfio-pci by us, and to stay there.
        let stays = "xpath1.set=./@managed,xpath1.value=no";
        put("--hostdev", format!("pci_{name},{stays}"));
    }
    let mut nodes: Vec<String> = g
        .slots
        .iter()
        .filter_map(|s| s.numa_node)
        .map(|n| n.to_string())
        .collect();
    nodes.dedup();
    if !nodes.is_empty() {
        put(
            "--numatune",
            format!("{},mode=preferred", nodes.first().map_or("", String::as_str)),
        );
    }
    put("--graphics", "none".to_owned());
    put("--video", "none".to_owned());
    put("--sound", "none".to_owned());
    put("--controller", "usb,model=none".to_owned());
    put("--rng", "/dev/urandom".to_owned());
    put("--console", "pty,target.type=serial".to_owned());
    all.extend(["--import", "--noautoconsole", "--quiet"].map(str::to_owned));
    all
}

/// The seed as one more disk. Not by `--disk`: for a file that would make a storage pool of its folder, and leave it.
fn seed(put: &mut impl FnMut(&str, String), g: &Guest<'_>) {
    let number = g.slots.len().saturating_add(1);
    let letter = u8::try_from(g.slots.len()).map_or('z', |n| char::from(b'a'.saturating_add(n)));
    let disk = format!("./devices/disk[{number}]");
    put("--xml", format!("xpath.create={disk}"));
    for (place, value) in [
        ("@type", "file".to_owned()),
        ("@device", "disk".to_owned()),
        ("driver/@name", "qemu".to_owned()),
        ("driver/@type", "raw".to_owned()),
        ("source/@file", g.seed.display().to_string()),
        ("target/@dev", format!("vd{letter}")),
        ("target/@bus", "virtio".to_owned()),
    ] {
        put("--xml", format!("xpath.set={disk}/{place},xpath.value={value}"));
    }
    put("--xml", format!("xpath.create={disk}/readonly"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_machine_has_its_slots_devices_and_no_display() {
        let slot = |n: u8| {
            json!({
                "slot_id": format!("slot-{n}"), "slot_index": n, "pci_address": format!("0000:3b:00.{n}"),
                "nvme_device": format!("/dev/disk/by-id/nvme-{n}"), "vcpu_count": 2, "memory_mib": 512, "numa_node": 1,
                "mac_address": format!("52:54:00:00:00:0{n}"), "private_ip": format!("10.77.0.1{n}"),
            })
        };
        let p: SliceVmProvision = serde_json::from_value(json!({
            "allocation_id": "a", "vm_name": "vm-1", "image_path": "/i/a", "image_sha256": "0".repeat(64),
            "default_username": "alice", "ovs_bridge": "br-slice", "slots": [slot(0), slot(1)],
            "ssh_public_keys": [format!("ssh-ed25519 {}", "A".repeat(68))],
        }))
        .unwrap();
        let slots: Vec<&SliceSlot> = p.slots.iter().collect();
        let all = arguments(&Guest {
            p: &p,
            slots: &slots,
            uuid: "u",
            accel: Accel::Kvm,
            seed: Path::new("/s/seed.iso"),
        });
        let text = all.join(" ");
        for part in [
            "--memory 1024",
            "--vcpus 4",
            "--virt-type kvm",
            "path=/dev/disk/by-id/nvme-0,",
            "path=/dev/disk/by-id/nvme-1,",
            "mac.address=52:54:00:00:00:00,",
            "--hostdev pci_0000_3b_00_0,xpath1.set=./@managed,xpath1.value=no",
            "pci_0000_3b_00_1,xpath1.set=./@managed,xpath1.value=no",
            "--numatune 1,",
            "--graphics none",
            "xpath.set=./devices/disk[3]/source/@file,xpath.value=/s/seed.iso",
            "disk[3]/target/@dev,xpath.value=vdc",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("--network").count(), 1);
    }
}
