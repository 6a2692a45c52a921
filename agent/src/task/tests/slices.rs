//! Slices' parameters that reach for what the site has not given: refused by code, before anything is done.

use hpc_schema::code::Code;
use serde_json::{Value, json};

use super::super::Ledger;
use super::super::Owner;
use super::super::domain::running;
use super::super::effect::{Disk, Effect, Lease, Trace, User};
use super::super::journal::{Journal, Record, lock};
use super::super::verify::hash_of;
use super::bench::*;
use crate::heartbeat::HoldingsFile;

fn provision() -> Value {
    json!({
        "allocation_id": "alloc-1", "vm_name": "vm-1", "image_path": "/var/lib/libvirt/images/a.img",
        "image_sha256": "a".repeat(64), "driver_strategy": "none", "default_username": "alice",
        "ssh_public_keys": [format!("ssh-ed25519 {}", "A".repeat(68))], "ovs_bridge": "br-slice",
        "slots": [{
            "slot_id": "slot-0", "slot_index": 0, "nvme_device": "/dev/disk/by-id/nvme-x", "vcpu_count": 1,
            "memory_mib": 128, "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16",
        }],
    })
}

#[test]
fn a_slice_reaches_for_no_device_bridge_host_or_size_that_the_site_has_not_given() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let cases: [(&str, Value, Code); 15] = [
        ("/slots/0/nvme_device", json!("/dev/sda"), Code::PolicyDenied),
        (
            "/slots/0/nvme_device",
            json!("/dev/disk/by-id/nvme-x,format=qcow2"),
            Code::PolicyDenied,
        ),
        (
            "/slots/0/nvme_device",
            json!("/dev/disk/by-id/../../sda"),
            Code::InvalidField,
        ),
        ("/slots/0/nvme_device", json!("/etc/shadow"), Code::InvalidField),
        ("/slots/0/nvme_device", json!("-rf"), Code::InvalidField),
        (
            "/slots/0/pci_address",
            json!("0000:3b:00.0/../.."),
            Code::InvalidField,
        ),
        (
            "/slots/0/mac_address",
            json!("52:54:00:00:00:01,model.type=e1000"),
            Code::InvalidField,
        ),
        ("/slots/0/slot_id", json!("../slot"), Code::InvalidField),
        ("/slots/0/vcpu_count", json!(1000), Code::PolicyDenied),
        ("/vm_name", json!("vm --print-xml"), Code::InvalidField),
        ("/vm_name", json!("../vm"), Code::InvalidField),
        ("/ovs_bridge", json!("br0,mac=x"), Code::InvalidField),
        (
            "/default_username",
            json!("-oProxyCommand=id"),
            Code::InvalidField,
        ),
        (
            "/image_path",
            json!("/etc/../var/lib/libvirt/images/a.img"),
            Code::InvalidField,
        ),
        (
            "/image_url",
            json!("https://evil.example.com/a.img"),
            Code::PolicyDenied,
        ),
    ];
    for (n, (place, value, wanted)) in cases.into_iter().enumerate() {
        let mut all = provision();
        match place {
            "/image_url" => all["image_url"] = value.clone(),
            "/slots/0/pci_address" => all["slots"][0]["pci_address"] = value.clone(),
            _ => *all.pointer_mut(place).unwrap() = value.clone(),
        }
        let task = node
            .site
            .task(&format!("task-{n}"), "slice.vm_provision", &all.to_string());
        let result = node.run(&task);
        assert_eq!(
            code(&result),
            Some(wanted),
            "{place} {value}: {:?}",
            result.detail
        );
        for folder in [node.host.dir.slices(), node.host.dir.leases()] {
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "{place} {value}");
        }
    }
    let wipe = json!({"allocation_id": "a", "vm_name": "v", "slots": [{
        "slot_id": "slot-0", "slot_index": 0, "nvme_device": "/dev/sda", "mac_address": "52:54:00:00:00:01",
        "private_ip": "10.77.0.16",
    }]});
    let result = node.run(&node.site.task("task-wipe", "slice.vm_release", &wipe.to_string()));
    assert_eq!(code(&result), Some(Code::PolicyDenied), "{:?}", result.detail);
}

/// A provision that was interrupted after its image was written, and whose disk cannot be wiped.
fn interrupted(node: &super::super::Host, site: &Site) -> hpc_schema::task::Task {
    node.dir.create().unwrap();
    let task = site.task("task-1", "slice.vm_provision", &provision().to_string());
    let taken = Record::Taken {
        hash: hash_of(&task, &site.authority).unwrap().to_hex(),
        task: task.clone(),
        at: 1,
        owner: Some(Owner::new("slice", "vm-1")),
    };
    let mut journal = Journal::create(&node.dir.journal(), &task.task_id, taken).unwrap();
    let lease = node.dir.leases().join("slot-0.json");
    std::fs::write(&lease, "{}").unwrap();
    let at = |file: &std::path::Path| {
        use std::os::unix::fs::MetadataExt as _;
        let meta = file.metadata().unwrap();
        Trace::Inode {
            dev: meta.dev(),
            ino: meta.ino(),
            kind: meta.mode() & 0o170_000,
            born: 0,
            born_ns: 0,
        }
    };
    // No block device: nobody can wipe it.
    let disk = node.dir.path().join("no-disk");
    std::fs::write(&disk, "x").unwrap();
    let effects: [(Effect, Trace); 2] = [
        (
            Effect::Lease(Lease {
                path: path(&lease),
                resource: "slot/slot-0".to_owned(),
                holder: "alloc-1".to_owned(),
            }),
            at(&lease),
        ),
        (
            Effect::Disk(Disk {
                device: path(&disk),
                write: None,
                blkdiscard: path("/usr/sbin/blkdiscard"),
            }),
            at(&disk),
        ),
    ];
    journal.add(Record::Began { at: 1 }).unwrap();
    for (step, (effect, trace)) in effects.into_iter().enumerate() {
        journal.add(Record::Intent { step, effect }).unwrap();
        journal.add(Record::Made { step, trace }).unwrap();
        journal.add(Record::Done { step }).unwrap();
    }
    let mut slot = provision()["slots"][0].clone();
    slot["nvme_device"] = json!(disk);
    for (name, value) in [
        ("slots", json!([slot])),
        ("public.vcpus", json!(1)),
        ("public.memory_mib", json!(1024)),
    ] {
        let name = name.to_owned();
        journal.add(Record::Fact { name, value }).unwrap();
    }
    task
}

#[test]
fn what_a_slice_was_promised_counts_once_it_is_let_in_and_until_nothing_of_it_remains() {
    let dir = tempfile::tempdir().unwrap();
    let (host, site) = (host(dir.path()), Site::new());
    let task = interrupted(&host, &site);
    let promised = |ledger: &Ledger| {
        let all = ledger.promised("slice", "admitted");
        all.iter()
            .map(|f| f["public.memory_mib"].clone())
            .collect::<Vec<_>>()
    };
    let ledger = Ledger::open(host.dir.journal()).unwrap();
    assert!(promised(&ledger).is_empty(), "it is not let in yet");
    let journal = ledger.find(&task.task_id).unwrap();
    let fact = Record::Fact {
        name: "admitted".to_owned(),
        value: json!(true),
    };
    lock(&journal).add(fact).unwrap();
    assert_eq!(promised(&ledger), [json!(1024)]);
    assert!(ledger.promised("vm", "admitted").is_empty());
    drop((journal, ledger));
    let node = Node::with(host, site);
    // Its disk cannot be wiped: it goes on counting.
    node.run(&task);
    let domain = node.domain;
    domain.stop();
    let ledger = Ledger::open(node.host.dir.journal()).unwrap();
    assert_eq!(promised(&ledger), [json!(1024)]);
    let journal = ledger.find(&task.task_id).unwrap();
    for step in 0..2 {
        lock(&journal).add(Record::Undone { step }).unwrap();
    }
    assert!(promised(&ledger).is_empty());
}

#[test]
fn a_slot_whose_task_ended_as_nobody_knows_is_unproven_held_and_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let (host, site) = (host(dir.path()), Site::new());
    let task = interrupted(&host, &site);
    let node = Node::with(host, site);
    let result = node.run(&task);
    assert_eq!(code(&result), Some(Code::OutcomeUnknown), "{:?}", result.detail);
    assert!(value(&result)["findings"][0].as_str().unwrap().contains("disk"));
    let mut file = HoldingsFile::new(Some(node.host.dir.path()));
    let mut seen = file.read().unwrap().clone();
    until("a slot is unproven", || {
        seen = file.read().unwrap().clone();
        seen.unproven_slots > 0
    });
    // It counts as one to be proven before the node returns to service, and what it could take is given to nobody.
    assert_eq!(
        (seen.unproven_slots, seen.held.cores, seen.held.memory_gb),
        (1, 1, 1)
    );
    let lease = node.host.dir.leases().join("slot-0.json");
    assert!(
        lease.exists(),
        "the lease of a disk that could not be wiped was given back"
    );
    // Also over a restart.
    let Node {
        host, domain, site, ..
    } = node;
    domain.stop();
    let _node = Node::with(host, site);
    assert_eq!(file.read().unwrap().unproven_slots, 1);
    assert!(lease.exists());
}

#[test]
fn what_may_run_is_running_from_before_it_begins_until_it_is_gone_however_its_task_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (host, site) = (host(dir.path()), Site::new());
    let task = interrupted(&host, &site);
    let ledger = Ledger::open(host.dir.journal()).unwrap();
    let journal = ledger.find(&task.task_id).unwrap();
    let runs = || running(lock(&journal).story());
    assert_eq!(runs(), None, "a lease and a disk run nothing");
    let effect = Effect::User(User {
        name: "alice".parse().unwrap(),
        uid: 2000,
        home: path(std::path::Path::new("/home/alice")),
        shell: path(std::path::Path::new("/bin/bash")),
    });
    lock(&journal).add(Record::Intent { step: 2, effect }).unwrap();
    let at_work = runs().unwrap();
    assert_eq!((at_work.kind.as_str(), at_work.name.as_str()), ("slice", "vm-1"));
    assert_eq!(at_work.allocation_id, None);
    let fact = |name: &str, value: Value| Record::Fact {
        name: name.to_owned(),
        value,
    };
    lock(&journal)
        .add(fact("public.unproven_slots", json!(1)))
        .unwrap();
    lock(&journal)
        .add(fact("allocation_id", json!("alloc-7")))
        .unwrap();
    assert_eq!(
        runs().unwrap().allocation_id.as_deref(),
        Some("alloc-7"),
        "nobody has ended it"
    );
    lock(&journal).add(Record::Undone { step: 2 }).unwrap();
    assert_eq!(runs(), None);
}
