//! A machine that is let, with functions of the bus, is taken down: libvirt and the kernel are stand-ins.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hpc_schema::task::TaskOutcome;
use serde_json::{Value, json};

use super::super::effect::{Domain, Effect, Passthrough};
use super::super::journal::{Journal, Record};
use super::super::verify::hash_of;
use super::super::{Host, Owner};
use super::bench::*;
use crate::probe::Roots;

const GPU: &str = "0000:3b:00.0";
const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// `virsh` of one domain that obeys its power button, and the other programs.
fn programs(dir: &Path) {
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    let virsh = format!(
        "#!/bin/sh\ncd {}\nshift 3\necho \"$*\" >> called\ncase \"$*\" in\n\
         'list --all --uuid') cat domain 2>/dev/null;;\n\
         'list --uuid') [ -e off ] || cat domain 2>/dev/null;;\n\
         'list --all --name') [ -e domain ] && echo vm-1;;\n\
         shutdown*|destroy*) touch off;;\nundefine*) rm -f domain;;\nesac\nexit 0\n",
        dir.display()
    );
    let others = [
        "virt-install",
        "qemu-img",
        "xorriso",
        "ssh",
        "blkdiscard",
        "ovs-vsctl",
        "curl",
        "prlimit",
    ];
    let others = others.map(|name| (name, "#!/bin/sh\nexit 1\n".to_owned()));
    for (name, text) in others.into_iter().chain([("virsh", virsh)]) {
        crate::stand_in::stand_in(&bin.join(name), &text);
    }
    fs::write(dir.join("domain"), format!("{UUID}\n")).unwrap();
}

/// The function with the host's own driver: somebody has taken it back meanwhile.
fn bus(sys: &Path) {
    let device = sys.join("bus/pci/devices").join(GPU);
    fs::create_dir_all(&device).unwrap();
    for driver in ["nvidia", "vfio-pci"] {
        fs::create_dir_all(sys.join("bus/pci/drivers").join(driver)).unwrap();
    }
    symlink(sys.join("bus/pci/drivers/nvidia"), device.join("driver")).unwrap();
}

fn slot() -> Value {
    json!({
        "slot_id": "slot-0", "slot_index": 0, "nvme_device": "/dev/disk/by-id/nvme-x", "vcpu_count": 1,
        "memory_mib": 128, "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16", "pci_address": GPU,
    })
}

/// What a provision that completed has left.
fn holding(host: &Host, site: &Site) {
    host.dir.create().unwrap();
    let task = site.task("task-1", "slice.vm_provision", "{}");
    let taken = Record::Taken {
        hash: hash_of(&task, &site.authority).unwrap().to_hex(),
        task: task.clone(),
        at: 1,
        owner: Some(Owner::new("slice", "vm-1")),
    };
    let mut journal = Journal::create(&host.dir.journal(), &task.task_id, taken).unwrap();
    let programs = host.policy.machines.programs.clone().unwrap();
    let program = |name: &str| path(Path::new(programs.as_str()).join(name));
    let effects: [Effect; 2] = [
        Effect::Passthrough(Passthrough {
            sys: path(&host.roots.sys),
            address: GPU.parse().unwrap(),
        }),
        Effect::Domain(Domain {
            virsh: program("virsh"),
            virt_install: program("virt-install"),
            arguments: Vec::new(),
            folder: path(host.dir.slices().join("vm-1")),
            name: "vm-1".to_owned(),
            uuid: UUID.to_owned(),
        }),
    ];
    journal.add(Record::Began { at: 1 }).unwrap();
    for (step, effect) in effects.into_iter().enumerate() {
        journal.add(Record::Intent { step, effect }).unwrap();
        journal.add(Record::Done { step }).unwrap();
    }
    for (name, value) in [
        ("uuid", json!(UUID)),
        ("allocation_id", json!("alloc-1")),
        ("slots", json!([slot()])),
    ] {
        let name = name.to_owned();
        journal.add(Record::Fact { name, value }).unwrap();
    }
    let ended = Record::Ended {
        outcome: TaskOutcome::Completed,
        code: None,
        detail: None,
        result: serde_json::value::RawValue::from_string("{}".to_owned()).unwrap(),
        started_at: 1,
        finished_at: 2,
    };
    journal.add(ended).unwrap();
}

#[test]
fn a_function_of_a_let_machine_comes_back_to_vfio_once_its_domain_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    programs(dir.path());
    let sys = dir.path().join("sys");
    bus(&sys);
    let mut host = host(dir.path());
    host.roots = Roots {
        sys: sys.clone(),
        ..Roots::default()
    };
    Arc::make_mut(&mut host.policy).machines.programs = Some(path(dir.path().join("bin")));
    let site = Site::new();
    holding(&host, &site);
    let node = Node::with(host, site);
    let params = json!({
        "allocation_id": "alloc-1", "vm_name": "vm-1", "wipe": false, "graceful_timeout_seconds": 30,
    });
    let over = AtomicBool::new(false);
    let (result, gone_before) = std::thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            let device = sys.join("bus/pci/devices").join(GPU);
            // Also where the test fails meanwhile: this thread is waited for.
            let end = Instant::now() + PATIENCE * 2;
            while !over.load(Ordering::Acquire) && Instant::now() < end {
                if fs::read_to_string(sys.join("bus/pci/drivers_probe")).is_ok_and(|t| t == GPU) {
                    let gone = !dir.path().join("domain").exists();
                    fs::remove_file(device.join("driver")).unwrap();
                    symlink(sys.join("bus/pci/drivers/vfio-pci"), device.join("driver")).unwrap();
                    return Some(gone);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            None
        });
        let result = node.run(&node.site.task("task-2", "slice.vm_release", &params.to_string()));
        over.store(true, Ordering::Release);
        (result, kernel.join().unwrap())
    });
    assert_eq!(result.outcome, TaskOutcome::Completed, "{:?}", result.detail);
    assert_eq!(
        gone_before,
        Some(true),
        "it was taken from a domain that is there"
    );
    let released = value(&result);
    assert_eq!(
        (
            &released["existed"],
            &released["hard_stopped"],
            &released["slots_free"]
        ),
        (&json!(true), &json!(false), &json!(false))
    );
    assert_eq!(released["cleanup"]["devices_rebound"], json!([GPU]));
    assert_eq!(released["cleanup"]["domain_gone"], json!(true));
    assert!(released["timings"]["rebind"].is_u64(), "{released}");
    let device = sys.join("bus/pci/devices").join(GPU);
    assert_eq!(
        fs::read_to_string(device.join("driver_override")).unwrap(),
        "vfio-pci"
    );
    assert_eq!(
        fs::read_to_string(sys.join("bus/pci/drivers/nvidia/unbind")).unwrap(),
        GPU
    );
    let called = fs::read_to_string(dir.path().join("called")).unwrap();
    let at = |word: &str| called.lines().position(|l| l.starts_with(word));
    assert!(
        at("shutdown").unwrap() < at("undefine").unwrap() && at("destroy").is_none(),
        "{called}"
    );
}
