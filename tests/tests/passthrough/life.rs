//! From an empty host to a proof: found, wiped, let, taken back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hpc_schema::task::{Accel, TaskOutcome, TaskResult};
use serde_json::{Value, json};
use virtengine_node_agent::machine::Tools;
use virtengine_node_agent::machine::accel::{Evidence, Known, key};

use super::bus;
use super::host::{BRIDGE, image, left, prepare, run, tenant};
use super::machine::inside;
use super::node::{Node, task, until};

/// Where the far node's disk lies, by the name that stays.
const DISK: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_HPC-FAR";

fn udev() {
    run("/lib/systemd/systemd-udevd", &["--daemon"]);
    run("udevadm", &["trigger"]);
    run("udevadm", &["settle"]);
}

/// A node's folder, for libvirt's user to pass through.
fn place() -> PathBuf {
    let dir = PathBuf::from("/run/nodes/emulated");
    fs::create_dir_all(dir.join("tasks")).unwrap();
    for path in [Path::new("/run/nodes"), &dir] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (folder, kernel) = (
        image().image.parent().unwrap().display(),
        image().kernel.display(),
    );
    let policy = format!(
        "mode: slice\nmachines: {{image_directories: [{folder}], probe_kernel: {kernel}, reserve_memory_mib: 0}}\n\
         slices: {{dhcp_hosts: /run/dhcp, telemetry: /run/telemetry}}\n"
    );
    fs::write(dir.join("policy.yaml"), policy).unwrap();
    fs::set_permissions(dir.join("policy.yaml"), fs::Permissions::from_mode(0o644)).unwrap();
    dir
}

/// That emulation works is known here: a kernel that is emulated twice takes longer than the probe waits.
fn know(tasks: &Path) {
    let kernel = &image().kernel;
    let qemu = Tools::find(None).unwrap().qemu;
    let mut known = Known::load(&tasks.join("accel.json"), key(Path::new("/proc"), &qemu, kernel));
    let seen = Evidence {
        works: true,
        detail: "this very machine runs by it".to_owned(),
        took_ms: 1,
        at: 1,
    };
    known.put(Accel::Tcg, &seen);
}

fn value(result: &TaskResult) -> Value {
    assert_eq!(
        result.outcome,
        TaskOutcome::Completed,
        "{:?} {:?}",
        result.code,
        result.detail
    );
    serde_json::from_str(result.result.get()).unwrap()
}

fn is_zero(device: &str) -> bool {
    // Past whatever the kernel remembers of it.
    run("blockdev", &["--flushbufs", device]);
    fs::read(device).unwrap().iter().all(|b| *b == 0)
}

/// The machine that libvirt has started, if it has: its number.
fn qemu() -> Option<u32> {
    fs::read_dir("/proc").unwrap().find_map(|e| {
        let path = e.unwrap().path();
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let pid = path.file_name()?.to_str()?.parse().ok()?;
        (line.contains("qemu-system") && line.contains("vfio-pci")).then_some(pid)
    })
}

/// Groups that a process has open.
fn groups_of(pid: u32) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|e| {
            fs::read_link(e.ok()?.path())
                .ok()?
                .to_str()?
                .strip_prefix("/dev/vfio/")
                .map(str::to_owned)
        })
        .filter(|n| n != "vfio")
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn a_slot_is_found_bound_written_let_wiped_and_proven_on_emulated_devices() {
    const NAME: &str = "life::a_slot_is_found_bound_written_let_wiped_and_proven_on_emulated_devices";
    inside(NAME, life);
}

fn life() {
    let begun = Instant::now();
    let step = |what: &str| println!("{:>4} s  {what}", begun.elapsed().as_secs());
    step("test begins");
    prepare(udev);
    step("services run");
    let (functions, gpu) = bus::dress();
    let dir = place();
    know(&dir.join("tasks"));
    let node = Node::start(&dir);

    // Found, as they are.
    let found = value(&node.run(&task("discover-1", "slice.topology_discover", &json!({}))));
    step("slots are found");
    println!("{found:#}");
    assert_eq!(found["approval_required"], true);
    let p = &found["prerequisites"];
    assert!(p["iommu_group_count"].as_u64() >= Some(8), "{p}");
    assert_eq!(p["iommu_kernel_args"], json!(["intel_iommu=on", "iommu=pt"]));
    let disks: Vec<_> = found["nvme_devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| {
            (
                d["by_id"].as_str().unwrap().to_owned(),
                d["numa_node"].as_u64(),
                d["bytes"].as_u64(),
            )
        })
        .collect();
    assert_eq!(disks.len(), 2, "{disks:?}");
    let bytes = Some(96 << 20);
    assert!(disks.contains(&(DISK.to_owned(), Some(1), bytes)), "{disks:?}");
    assert!(
        disks.contains(&(
            "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_HPC-NEAR".to_owned(),
            Some(0),
            bytes
        )),
        "{disks:?}"
    );
    let seen: Vec<&str> = found["fabric_devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["pci_address"].as_str().unwrap())
        .collect();
    assert_eq!(seen, functions);
    let candidate = &found["candidate_slots"][0];
    assert_eq!(
        (
            candidate["pci_address"].as_str(),
            candidate["fabric_device"].as_str(),
            candidate["nvme_device"].as_str()
        ),
        (Some(gpu.as_str()), Some(functions[0].as_str()), Some(DISK)),
        "what lies on the GPU's own node belongs together"
    );
    assert_eq!(candidate["numa_node"], 1);

    // Approved: handed to vfio-pci, wiped, proven.
    let mut slot = candidate.clone();
    slot["vcpu_count"] = json!(1);
    slot["memory_mib"] = json!(192);
    fs::write(DISK, vec![0xa5u8; 96 << 20]).unwrap();
    run("sync", &[]);
    assert!(!is_zero(DISK));
    let wipe = |id: &str| {
        let params = json!({"allocation_id": "first-wipe", "vm_name": "none-yet", "slots": [slot]});
        value(&node.run(&task(id, "slice.vm_release", &params)))
    };
    let clean = wipe("wipe-1");
    step("the slot is wiped and proven");
    println!("{clean:#}");
    assert_eq!(clean["slots_free"], true);
    let rebound = clean["cleanup"]["devices_rebound"].as_array().unwrap();
    assert_eq!(rebound.len(), 2, "{clean}");
    assert_eq!(clean["cleanup"]["wiped"][0]["zero"], true);
    assert!(is_zero(DISK), "the wipe left something");
    for function in [&gpu, &functions[0]] {
        assert_eq!(bus::driver(function), "vfio-pci", "{function}");
        assert!(Path::new(&format!("/dev/vfio/{}", bus::group(function))).exists());
    }
    assert_ne!(bus::driver(&functions[1]), "vfio-pci", "nobody asked for it");

    // Let: the image on NVMe, a machine of libvirt that holds both groups.
    let (_, key) = tenant();
    let params = json!({
        "allocation_id": "alloc-1", "vm_name": "vm-1", "image_path": image().image, "image_sha256": image().sha256,
        "image_format": "raw", "driver_strategy": "none", "default_username": "alice", "ssh_public_keys": [key],
        "slots": [slot], "ovs_bridge": BRIDGE, "accel": "tcg", "ready_timeout_seconds": 60,
    });
    let make = task("provision-1", "slice.vm_provision", &params);
    let mut wanted = vec![bus::group(&gpu), bus::group(&functions[0])];
    wanted.sort();
    let over = AtomicBool::new(false);
    let held = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut held = Vec::new();
            until("the machine has both groups", Duration::from_secs(900), || {
                held = qemu().map(groups_of).unwrap_or_default();
                held == wanted || over.load(Ordering::Acquire)
            });
            let written = fs::read(DISK).unwrap();
            (held, written)
        });
        let made = node.run(&make);
        over.store(true, Ordering::Release);
        let (held, written) = watch.join().unwrap();
        step(&format!(
            "the machine ended: {:?} {:?} {:?}",
            made.outcome, made.code, made.detail
        ));
        assert_eq!(held, wanted, "{:?}", made.detail);
        let source = fs::read(&image().image).unwrap();
        assert!(
            written.starts_with(&source[..1 << 20]),
            "the image is not on the disk"
        );
        // A kernel that is emulated twice is hardly up in time; and if it is, it sees no GPU of NVIDIA's. Then all is undone.
        assert_eq!(made.outcome, TaskOutcome::Failed, "{made:?}");
        let detail = made.detail.unwrap_or_default();
        let late = made.code.as_deref() == Some("task_timeout");
        assert!(late || detail.contains("the machine sees 0"), "{detail}");
        held
    });
    println!("groups of the machine: {held:?}");
    let left = left(&dir.join("tasks"));
    assert!(left.is_empty(), "{left:?}");
    assert!(is_zero(DISK), "the disk is not zero");
    for function in [&gpu, &functions[0]] {
        assert_eq!(bus::driver(function), "vfio-pci", "the host took {function} back");
    }
    // And once more, signed: the slot is free.
    let clean = wipe("wipe-2");
    assert_eq!(clean["slots_free"], true, "{clean}");
    step("proven again");
}
