//! Slices' parameters that reach for what the site has not given: refused by code, before anything is done.

use hpc_schema::code::Code;
use serde_json::{Value, json};

use super::bench::*;

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
