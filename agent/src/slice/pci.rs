//! PCI functions that slices hand through: whether they may be, and how they come to `vfio-pci`. They stay there: the
//! host never takes back what a tenant had in hand.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hpc_schema::task::PciAddress;

use crate::files::{FileError, at};
use crate::probe::{line, names_in};

/// The driver that hands through.
pub const DRIVER: &str = "vfio-pci";
/// How long the kernel may take to bind.
const PATIENCE: Duration = Duration::from_secs(10);
/// VGA and 3D controllers; network controllers.
const CLASSES: [&str; 3] = ["0x0300", "0x0302", "0x02"];
/// Bridges go along in a group and are handed to nobody.
const BRIDGE: &str = "0x06";

fn device(sys: &Path, address: &str) -> PathBuf {
    sys.join("bus/pci/devices").join(address)
}

fn target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

/// The driver that has it; none if there is none.
#[must_use]
pub fn driver(sys: &Path, address: &PciAddress) -> Option<String> {
    target(&device(sys, address.as_str()).join("driver"))
}

/// Whether `vfio-pci` has it.
#[must_use]
pub fn is_bound(sys: &Path, address: &PciAddress) -> bool {
    driver(sys, address).as_deref() == Some(DRIVER)
}

/// Why a function is not handed through, if it is not; else the functions that go along: those of the same card in its
/// group, such as a GPU's sound.
///
/// # Errors
/// The reason.
pub fn companions(sys: &Path, address: &PciAddress) -> Result<Vec<PciAddress>, String> {
    let dir = device(sys, address.as_str());
    if !dir.is_dir() {
        return Err(format!("{address} is not on the bus"));
    }
    let class = line(&dir.join("class")).unwrap_or_default();
    if !CLASSES.iter().any(|c| class.starts_with(c)) {
        return Err(format!(
            "{address} is neither a GPU nor a network function (class {class})"
        ));
    }
    let is_network = class.starts_with("0x02");
    if is_network && !dir.join("physfn").exists() {
        return Err(format!(
            "{address} is a whole card; only virtual functions are handed through"
        ));
    }
    let group = target(&dir.join("iommu_group"))
        .ok_or_else(|| format!("{address} is in no IOMMU group; boot with intel_iommu=on or amd_iommu=on"))?;
    let members = names_in(&sys.join("kernel/iommu_groups").join(&group).join("devices"));
    let slot = |a: &str| a.rsplit_once('.').map(|(slot, _)| slot.to_owned());
    let mut along = Vec::new();
    for member in members.iter().filter(|m| m.as_str() != address.as_str()) {
        let bridge = line(&device(sys, member).join("class")).is_some_and(|c| c.starts_with(BRIDGE));
        if bridge {
            continue;
        }
        match member.parse::<PciAddress>() {
            Ok(own) if slot(member) == slot(address.as_str()) => along.push(own),
            _ => return Err(format!("{address} shares IOMMU group {group} with {member}")),
        }
    }
    Ok(along)
}

/// Brings a function to `vfio-pci`. Good if it is there already.
///
/// # Errors
/// IO; the kernel does not bind it.
pub fn bind(sys: &Path, address: &PciAddress) -> Result<(), FileError> {
    if is_bound(sys, address) {
        return Ok(());
    }
    let dir = device(sys, address.as_str());
    let write = |path: &Path, text: &str| fs::write(path, text).map_err(at("write", path));
    write(&dir.join("driver_override"), DRIVER)?;
    if dir.join("driver").exists() {
        write(&dir.join("driver/unbind"), address.as_str())?;
    }
    write(&sys.join("bus/pci/drivers_probe"), address.as_str())?;
    let begun = Instant::now();
    while !is_bound(sys, address) {
        if begun.elapsed() >= PATIENCE {
            let what = format!(
                "vfio-pci did not take it; is the module loaded? {:?} has it",
                driver(sys, address)
            );
            return Err(at("bind", &dir)(io::Error::other(what)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn function(root: &Path, address: &str, class: &str, group: u32, driver: &str) {
        let dir = format!("bus/pci/devices/{address}");
        put(root, &format!("{dir}/class"), class);
        put(root, &format!("{dir}/driver_override"), "");
        symlink(
            format!("../../../../kernel/iommu_groups/{group}"),
            root.join(&dir).join("iommu_group"),
        )
        .unwrap();
        let members = root.join(format!("kernel/iommu_groups/{group}/devices"));
        fs::create_dir_all(&members).unwrap();
        symlink(root.join(&dir), members.join(address)).unwrap();
        put(root, &format!("bus/pci/drivers/{driver}/unbind"), "");
        symlink(format!("../../drivers/{driver}"), root.join(&dir).join("driver")).unwrap();
    }

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_gpu_or_a_virtual_function_whose_group_is_its_own_is_handed_through() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        function(sys, "0000:3b:00.0", "0x030200", 1, "nvidia");
        function(sys, "0000:3b:00.1", "0x040300", 1, "snd_hda_intel");
        function(sys, "0000:3a:00.0", "0x060400", 1, "pcieport");
        function(sys, "0000:5e:00.0", "0x030200", 2, "nvidia");
        function(sys, "0000:5f:00.0", "0x010802", 2, "nvme");
        function(sys, "0000:18:00.0", "0x020700", 3, "mlx5_core");
        function(sys, "0000:18:00.1", "0x020700", 4, "mlx5_core");
        symlink("../0000:18:00.0", sys.join("bus/pci/devices/0000:18:00.1/physfn")).unwrap();
        assert_eq!(
            companions(sys, &address("0000:3b:00.0")).unwrap(),
            [address("0000:3b:00.1")]
        );
        assert_eq!(companions(sys, &address("0000:18:00.1")).unwrap(), []);
        for (bad, why) in [
            ("0000:5e:00.0", "shares IOMMU group 2 with 0000:5f:00.0"),
            ("0000:5f:00.0", "neither a GPU"),
            ("0000:18:00.0", "whole card"),
            ("0000:99:00.0", "not on the bus"),
        ] {
            let e = companions(sys, &address(bad)).unwrap_err();
            assert!(e.contains(why), "{bad}: {e}");
        }
    }

    /// The tree of a kernel, and in a thread what a kernel does when it is written to.
    #[test]
    fn a_function_is_taken_from_its_driver_and_given_to_vfio_in_the_kernels_order() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        function(sys, "0000:3b:00.0", "0x030200", 1, "nvidia");
        put(sys, "bus/pci/drivers_probe", "");
        fs::create_dir_all(sys.join("bus/pci/drivers/vfio-pci")).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let device = sys.join("bus/pci/devices/0000:3b:00.0");
                let read = |p: &str| fs::read_to_string(sys.join(p)).unwrap_or_default();
                // Also where the test fails meanwhile: this thread is waited for.
                let end = Instant::now() + PATIENCE * 2;
                while !over.load(Ordering::Acquire) && Instant::now() < end {
                    if read("bus/pci/drivers_probe") == "0000:3b:00.0" {
                        assert_eq!(read("bus/pci/drivers/nvidia/unbind"), "0000:3b:00.0");
                        assert_eq!(read("bus/pci/devices/0000:3b:00.0/driver_override"), "vfio-pci");
                        fs::remove_file(device.join("driver")).unwrap();
                        symlink("../../drivers/vfio-pci", device.join("driver")).unwrap();
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            bind(sys, &address("0000:3b:00.0")).unwrap();
            over.store(true, Ordering::Release);
        });
        assert!(is_bound(sys, &address("0000:3b:00.0")));
        // Nothing is written for one that is there already.
        put(sys, "bus/pci/drivers_probe", "untouched");
        bind(sys, &address("0000:3b:00.0")).unwrap();
        assert_eq!(
            fs::read_to_string(sys.join("bus/pci/drivers_probe")).unwrap(),
            "untouched"
        );
    }
}
