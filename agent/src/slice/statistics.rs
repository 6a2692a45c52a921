//! What libvirt says of slices' machines. The task domain asks it and writes this down; the agent's local interface, which
//! may not ask, shows it to Prometheus.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::{FileError, at, read_text};
use crate::task::TaskDir;

/// Some thousand machines.
const LIMIT: u64 = 8 << 20;

/// Of all machines here.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Each machine that libvirt told of.
    pub machines: Vec<OfMachine>,
}

/// Of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfMachine {
    /// Its name.
    pub vm_name: String,
    /// Its UUID.
    pub domain_uuid: String,
    /// UNIX seconds at which libvirt was asked.
    pub at: u64,
    /// Figures by libvirt's names (`virsh domstats`).
    pub values: BTreeMap<String, u64>,
    /// Names of its disks and cards, by libvirt's names.
    pub devices: BTreeMap<String, String>,
}

impl OfMachine {
    /// Reads what `virsh domstats` says of one machine.
    #[must_use]
    pub fn read(said: &str, (vm_name, domain_uuid): (&str, &str), at: u64) -> Self {
        let (mut values, mut devices) = (BTreeMap::new(), BTreeMap::new());
        // Of each CPU there are dozens, by the version of libvirt; their number is enough.
        let wanted = |name: &str| name == "vcpu.current" || !name.starts_with("vcpu.");
        let lines = said.lines().filter_map(|l| l.trim().split_once('='));
        for (name, value) in lines.filter(|(name, _)| wanted(name)) {
            if name.ends_with(".name") {
                devices.insert(name.to_owned(), value.to_owned());
            } else if let Ok(value) = value.parse() {
                values.insert(name.to_owned(), value);
            }
        }
        Self {
            vm_name: vm_name.to_owned(),
            domain_uuid: domain_uuid.to_owned(),
            at,
            values,
            devices,
        }
    }
}

impl Statistics {
    /// What the task domain wrote last; nothing before it has.
    ///
    /// # Errors
    /// IO, form.
    pub fn load(dir: &TaskDir) -> Result<Self, FileError> {
        let path = dir.statistics();
        if !path.try_exists().map_err(at("read", &path))? {
            return Ok(Self::default());
        }
        let text = read_text(&path, LIMIT)?;
        serde_json::from_str(&text).map_err(|e| at("read", &path)(e.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_by_libvirts_names_and_words_are_not() {
        let said = "Domain: 'vm-1'\n  cpu.time=430000000\n  block.count=1\n  block.0.name=vda\n  block.0.rd.bytes=512\n  \
                    vcpu.current=2\n  vcpu.0.state=1\n  block.0.path=/dev/x\n  balloon.current=-1\n";
        let of = OfMachine::read(said, ("vm-1", "u"), 7);
        assert_eq!(of.values.get("cpu.time"), Some(&430_000_000));
        assert_eq!(of.values.get("block.0.rd.bytes"), Some(&512));
        assert_eq!(of.devices.get("block.0.name").map(String::as_str), Some("vda"));
        // No path of the host, and no number that is none.
        assert_eq!((of.values.len(), of.devices.len()), (4, 1));
        let dir = tempfile::tempdir().unwrap();
        let tasks = TaskDir::new(dir.path());
        assert_eq!(Statistics::load(&tasks).unwrap(), Statistics::default());
        let all = Statistics { machines: vec![of] };
        std::fs::write(tasks.statistics(), serde_json::to_vec(&all).unwrap()).unwrap();
        assert_eq!(Statistics::load(&tasks).unwrap(), all);
    }
}
