//! Accelerators on the PCI bus: tells "this node has no GPU" from "its driver does not answer".

use std::path::Path;

use super::{Roots, line, names_in};

/// NVIDIA and AMD display or 3D controllers: compute devices.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Gpus {
    /// NVIDIA's.
    pub nvidia: u16,
    /// AMD's.
    pub amd: u16,
}

/// Number of both; none if the bus cannot be read.
#[must_use]
pub fn gpus(roots: &Roots) -> Option<u16> {
    by_vendor(roots).map(|g| g.nvidia.saturating_add(g.amd))
}

/// Number of each; none if the bus cannot be read.
#[must_use]
pub fn by_vendor(roots: &Roots) -> Option<Gpus> {
    let dir = roots.sys.join("bus/pci/devices");
    let mut found = Gpus::default();
    if !dir.is_dir() {
        // A machine without any PCI bus (some virtual ones) has no PCI GPU; an unmounted /sys says nothing.
        return roots.sys.join("bus").is_dir().then_some(found);
    }
    for device in names_in(&dir).iter().map(|name| dir.join(name)) {
        let count = match line(&device.join("vendor")).as_deref() {
            Some("0x10de") => &mut found.nvidia,
            Some("0x1002") => &mut found.amd,
            _ => continue,
        };
        if is_gpu(&device) {
            *count = count.saturating_add(1);
        }
    }
    Some(found)
}

fn is_gpu(device: &Path) -> bool {
    let class = line(&device.join("class")).unwrap_or_default();
    // 0x0300: VGA, 0x0302: 3D, 0x0380: other display; 0x1200: processing accelerator (MI300).
    ["0x0300", "0x0302", "0x0380", "0x1200"]
        .iter()
        .any(|c| class.starts_with(c))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn gpus_are_counted_and_an_unreadable_bus_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        assert_eq!(gpus(&roots), None);
        let bus = roots.sys.join("bus/pci/devices");
        for (name, vendor, class) in [
            ("0000:00:01.0", "0x8086", "0x030000"),
            ("0000:01:00.0", "0x10de", "0x030200"),
            ("0000:01:00.1", "0x10de", "0x040300"),
            ("0000:02:00.0", "0x1002", "0x120000"),
        ] {
            fs::create_dir_all(bus.join(name)).unwrap();
            fs::write(bus.join(name).join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(bus.join(name).join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(gpus(&roots), Some(2));
        fs::remove_dir_all(&bus).unwrap();
        assert_eq!(gpus(&roots), Some(0));
    }
}
