//! The emulated bus, as the kernel shows it, and what of it is made to look like a node's.

use std::fs;
use std::path::{Path, PathBuf};

use super::host::run;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
const MELLANOX: &str = "0x15b3";

fn line(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

pub(crate) fn of(address: &str) -> PathBuf {
    Path::new(DEVICES).join(address)
}

/// Addresses on the bus whose class begins so.
pub(crate) fn of_class(class: &str) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(DEVICES)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|a| line(&of(a).join("class")).starts_with(class))
        .collect();
    all.sort();
    all
}

pub(crate) fn driver(address: &str) -> String {
    let link = fs::read_link(of(address).join("driver")).unwrap_or_default();
    link.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn group(address: &str) -> String {
    let link = fs::read_link(of(address).join("iommu_group")).unwrap();
    link.file_name().unwrap().to_string_lossy().into_owned()
}

/// Lays a file with these words over one of the kernel's. QEMU emulates neither NVIDIA's nor Mellanox's devices: of a
/// graphics function and of NVMe's virtual functions the ids are covered, and nothing else.
fn cover(address: &str, name: &str, words: &str) {
    let file = PathBuf::from(format!("/run/cover-{address}-{name}"));
    fs::write(&file, format!("{words}\n")).unwrap();
    let place = of(address).join(name);
    run(
        "mount",
        &["--bind", file.to_str().unwrap(), place.to_str().unwrap()],
    );
}

/// Two virtual functions of the NVMe controller that can have some; the graphics function; in that order.
pub(crate) fn dress() -> (Vec<String>, String) {
    let parent = of_class("0x0108")
        .into_iter()
        .find(|a| line(&of(a).join("sriov_totalvfs")) == "2")
        .expect("a controller with virtual functions");
    let write = |name: &str, text: &str| fs::write(of(&parent).join(name), text).unwrap();
    // Their controllers are offline: nvme's driver would wait for them.
    write("sriov_drivers_autoprobe", "0");
    write("sriov_numvfs", "2");
    let functions: Vec<String> = of_class("0x0108")
        .into_iter()
        .filter(|a| of(a).join("physfn").exists())
        .collect();
    assert_eq!(functions.len(), 2, "{functions:?}");
    for function in &functions {
        cover(function, "vendor", MELLANOX);
        cover(function, "class", "0x020700");
    }
    let gpu = of_class("0x0300").pop().expect("a graphics function");
    cover(&gpu, "vendor", NVIDIA);
    (functions, gpu)
}
