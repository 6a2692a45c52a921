//! Trees as they are recorded: of a host like a DGX (two GPUs shown), of a plain one, and of this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hpc_schema::task::Topology;

use super::{COMMANDS, Tree, discover};
use crate::probe::Roots;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn link(root: &Path, path: &str, to: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(to, path).unwrap();
}

fn device(root: &Path, address: &str, class: &str, vendor: &str, group: u32, numa: i32, driver: &str) {
    let dir = format!("sys/bus/pci/devices/{address}");
    put(root, &format!("{dir}/class"), class);
    put(root, &format!("{dir}/vendor"), vendor);
    put(root, &format!("{dir}/device"), "0x2330");
    put(root, &format!("{dir}/numa_node"), &numa.to_string());
    link(
        root,
        &format!("{dir}/iommu_group"),
        &format!("../../../../kernel/iommu_groups/{group}"),
    );
    fs::create_dir_all(root.join(format!("sys/kernel/iommu_groups/{group}"))).unwrap();
    if !driver.is_empty() {
        link(
            root,
            &format!("{dir}/driver"),
            &format!("../../../../bus/pci/drivers/{driver}"),
        );
    }
}

fn namespace(root: &Path, name: &str, address: &str, id: &str) {
    put(root, &format!("sys/block/{name}/size"), "7501476528");
    put(root, &format!("sys/block/{name}/device/address"), address);
    fs::create_dir_all(root.join(format!("sys/block/{name}/holders"))).unwrap();
    link(root, &format!("dev/disk/by-id/{id}"), &format!("../../{name}"));
    link(
        root,
        &format!("dev/disk/by-id/nvme-eui.{name}"),
        &format!("../../{name}"),
    );
}

fn dgx(root: &Path) {
    put(
        root,
        "proc/cmdline",
        "BOOT_IMAGE=/vmlinuz root=/dev/md0 ro intel_iommu=on iommu=pt",
    );
    put(
        root,
        "proc/cpuinfo",
        "processor : 0\nflags\t\t: fpu vme vmx avx512f\n",
    );
    put(
        root,
        "proc/self/mounts",
        "/dev/nvme0n1p2 / ext4 rw 0 0\nproc /proc proc rw 0 0",
    );
    put(root, "proc/swaps", "Filename Type Size Used Priority");
    put(root, "proc/sys/net/ipv4/ip_forward", "1");
    put(root, "etc/machine-id", "0123456789abcdef0123456789abcdef");
    put(
        root,
        "etc/netplan/60-ib.yaml",
        "network:\n  ethernets:\n    ibp12s0:\n      mtu: 2044",
    );
    put(root, "sys/class/net/ibp12s0/type", "32");
    put(root, "sys/class/net/eth0/type", "1");
    put(root, "dev/kvm", "");
    for module in [
        "kvm",
        "vfio",
        "vfio_pci",
        "vfio_iommu_type1",
        "openvswitch",
        "ib_ipoib",
    ] {
        fs::create_dir_all(root.join("sys/module").join(module)).unwrap();
    }
    device(root, "0000:1b:00.0", "0x030200", "0x10de", 40, 0, "nvidia");
    device(root, "0000:9d:00.0", "0x030200", "0x10de", 80, 1, "vfio-pci");
    device(root, "0000:9d:00.1", "0x040300", "0x10de", 80, 1, "");
    device(root, "0000:18:00.0", "0x020700", "0x15b3", 41, 0, "mlx5_core");
    device(root, "0000:18:00.1", "0x020700", "0x15b3", 42, 0, "mlx5_core");
    link(root, "sys/bus/pci/devices/0000:18:00.1/physfn", "../0000:18:00.0");
    device(root, "0000:9a:00.0", "0x020700", "0x15b3", 81, 1, "mlx5_core");
    device(root, "0000:9a:00.1", "0x020700", "0x15b3", 82, 1, "vfio-pci");
    link(root, "sys/bus/pci/devices/0000:9a:00.1/physfn", "../0000:9a:00.0");
    device(root, "0000:03:00.0", "0x010802", "0x144d", 10, 0, "nvme");
    device(root, "0000:1d:00.0", "0x010802", "0x144d", 43, 0, "nvme");
    device(root, "0000:a0:00.0", "0x010802", "0x144d", 83, 1, "nvme");
    namespace(root, "nvme0n1", "0000:03:00.0", "nvme-SAMSUNG_S0");
    put(root, "sys/block/nvme0n1/nvme0n1p2/partition", "2");
    namespace(root, "nvme1n1", "0000:1d:00.0", "nvme-SAMSUNG_S1");
    namespace(root, "nvme2n1", "0000:a0:00.0", "nvme-SAMSUNG_S2");
}

fn look(root: &Path, tools: bool) -> Topology {
    let roots = Roots::below(root);
    let find = |name: &str| tools.then(|| PathBuf::from(format!("/usr/bin/{name}")));
    let ask = |name: &str, _: &[&'static str]| match name {
        _ if !tools => None,
        "ovs-vsctl" => Some("br-slice\n".to_owned()),
        "nft" => Some("table ip nat {\n chain post {\n  masquerade\n } }".to_owned()),
        _ => None,
    };
    discover(&Tree {
        roots: &roots,
        run: &root.join("run"),
        find: &find,
        ask: &ask,
    })
}

#[test]
fn a_host_like_a_dgx_shows_its_slots_and_nothing_stands_in_their_way() {
    let dir = tempfile::tempdir().unwrap();
    dgx(dir.path());
    let t = look(dir.path(), true);
    assert!(t.approval_required);
    assert_eq!(t.candidate_summary.blockers, Vec::<String>::new());
    assert_eq!(
        (t.gpu_devices.len(), t.fabric_devices.len(), t.nvme_devices.len()),
        (2, 4, 3)
    );
    assert_eq!(t.gpu_devices[0].driver.as_deref(), Some("nvidia"));
    assert_eq!(
        (t.gpu_devices[1].iommu_group, t.gpu_devices[1].numa_node),
        (Some(80), Some(1))
    );
    let function = &t.fabric_devices[1];
    assert!(function.is_vf);
    assert_eq!(
        function.physical_function.as_ref().unwrap().as_str(),
        "0000:18:00.0"
    );
    // The system's own disk is named with what uses it, and is nobody's slot.
    assert_eq!(
        t.nvme_devices[0].in_use.len(),
        2,
        "{:?}",
        t.nvme_devices[0].in_use
    );
    assert_eq!(t.nvme_devices[1].bytes, 7_501_476_528 * 512);
    let slots: Vec<_> = t
        .candidate_slots
        .iter()
        .map(|s| {
            (
                s.pci_address.as_str(),
                s.fabric_device.as_ref().unwrap().as_str(),
                s.nvme_device.as_deref().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        slots,
        [
            ("0000:1b:00.0", "0000:18:00.1", "/dev/disk/by-id/nvme-SAMSUNG_S1"),
            ("0000:9d:00.0", "0000:9a:00.1", "/dev/disk/by-id/nvme-SAMSUNG_S2"),
        ]
    );
    assert_eq!(look(dir.path(), true), t);
    let p = &t.prerequisites;
    assert_eq!(p.iommu_kernel_args, ["intel_iommu=on", "iommu=pt"]);
    assert_eq!(
        (p.cpu_virtualization[0].as_str(), p.slice_network.nat),
        ("vmx", Some(true))
    );
    assert_eq!(p.slice_network.ipoib_netplan, ["/etc/netplan/60-ib.yaml"]);
    put(dir.path(), "run/reboot-required", "");
    let again = look(dir.path(), true);
    assert_eq!(again.candidate_summary.blockers, ["the host wants a reboot"]);
    assert_eq!(again.prerequisites.reboot_required.len(), 1);
}

#[test]
fn a_plain_host_says_each_thing_that_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "proc/cmdline", "root=/dev/vda1");
    put(dir.path(), "proc/cpuinfo", "flags\t: fpu sse2");
    put(dir.path(), "proc/self/mounts", "/dev/vda1 / ext4 rw 0 0");
    let t = look(dir.path(), false);
    assert!(t.approval_required && t.candidate_slots.is_empty());
    let blockers = t.candidate_summary.blockers.join("\n");
    for part in [
        "vmx nor svm",
        "/dev/kvm",
        "IOMMU",
        "vfio_pci",
        "Open vSwitch",
        "forwarded",
        "masquerades",
        "no NVIDIA GPU",
    ] {
        assert!(blockers.contains(part), "{part}: {blockers}");
    }
    for command in COMMANDS {
        assert!(
            blockers.contains(&format!("{command} is not installed")),
            "{command}"
        );
    }
    assert_eq!(t.prerequisites.slice_network.ovs_bridges, None);
}

#[test]
fn this_machine_is_read_and_left_as_it_is() {
    let roots = Roots::default();
    let t = discover(&Tree {
        roots: &roots,
        run: Path::new("/run"),
        find: &|_| None,
        ask: &|_, _| None,
    });
    assert!(t.approval_required);
    assert_eq!(t.prerequisites.kvm_available, Path::new("/dev/kvm").exists());
    let value = serde_json::to_value(&t).unwrap();
    for key in [
        "prerequisites",
        "gpu_devices",
        "fabric_devices",
        "nvme_devices",
        "candidate_slots",
        "candidate_summary",
        "approval_required",
    ] {
        assert!(value.get(key).is_some(), "{key}");
    }
    for key in [
        "kvm_available",
        "iommu_group_count",
        "iommu_kernel_args",
        "cpu_virtualization",
        "loaded_modules",
        "required_commands",
        "slice_network",
        "reboot_required",
    ] {
        assert!(value["prerequisites"].get(key).is_some(), "{key}");
    }
}
