//! Accelerators on the PCI bus: tells "this node has no GPU" from "its driver does not answer".

use std::path::Path;

use super::{Roots, line, names_in};

/// Vendors whose display and 3D controllers are compute devices.
const GPU_VENDORS: [&str; 2] = ["0x10de", "0x1002"];

/// Number of NVIDIA and AMD display or 3D controllers; none if the bus cannot be read.
#[must_use]
pub fn gpus(roots: &Roots) -> Option<u16> {
    let dir = roots.sys.join("bus/pci/devices");
    if !dir.is_dir() {
        // A machine without any PCI bus (some virtual ones) has no PCI GPU; an unmounted /sys says nothing.
        return roots.sys.join("bus").is_dir().then_some(0);
    }
    let n = names_in(&dir)
        .iter()
        .filter(|name| is_gpu(&dir.join(name)))
        .count();
    Some(u16::try_from(n).unwrap_or(u16::MAX))
}

fn is_gpu(device: &Path) -> bool {
    let vendor = line(&device.join("vendor")).unwrap_or_default();
    let class = line(&device.join("class")).unwrap_or_default();
    // 0x0300: VGA, 0x0302: 3D, 0x0380: other display; 0x1200: processing accelerator (MI300).
    GPU_VENDORS.contains(&vendor.as_str())
        && ["0x0300", "0x0302", "0x0380", "0x1200"]
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
