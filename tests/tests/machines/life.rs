use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use serde_json::json;

use super::node::{Node, launch, left, place, processes, until};

#[test]
fn a_machine_is_launched_says_that_it_is_ready_and_is_terminated_with_proof() {
    let dir = place();
    let node = Node::start(dir.path());
    let made = node.done("t-launch", "vm.launch", &launch("vm-1", &json!({"disk_gib": 1})));
    println!("launch: {made}");
    let pid = made["pid"].as_u64().unwrap();
    assert_eq!(
        (made["accel"].as_str(), made["vm_id"].as_str()),
        (Some("tcg"), Some("vm-1"))
    );
    for phase in [
        "image_verify",
        "accel",
        "admission",
        "overlay",
        "seed",
        "start",
        "ready",
    ] {
        assert!(made["timings"][phase].is_u64(), "{phase}");
    }
    // QEMU's own jail, another user's files, nobody else's to read.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("Seccomp:\t2"), "{status}");
    let folder = node.host.dir.machines().join("vm-1");
    for name in ["disk.qcow2", "seed.iso"] {
        let meta = fs::metadata(folder.join(name)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{name}");
        assert!((2_000_000_000..2_000_065_535).contains(&meta.uid()), "{name}");
    }
    assert_eq!(
        fs::metadata(folder.join("run")).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert!(!folder.join("user-data").exists() && !folder.join("meta-data").exists());
    // What is held stands where heartbeats read it.
    until("holdings are published", Duration::from_secs(60), || {
        let text = fs::read_to_string(node.host.dir.holdings()).unwrap_or_default();
        text.contains("\"vcpus\"") && text.contains("vm-1") && !text.contains("uuid")
    });
    let ended = node.done(
        "t-end",
        "vm.terminate",
        &json!({"vm_id": "vm-1", "graceful_timeout_seconds": 60}),
    );
    println!("terminate: {ended}");
    assert_eq!(
        (ended["existed"].as_bool(), ended["hard_stopped"].as_bool()),
        (Some(true), Some(false))
    );
    assert!(
        ended["proof"].as_object().unwrap().values().all(|v| v == true),
        "{ended}"
    );
    assert!(
        left(&node.host, "vm-1").is_empty(),
        "{:?}",
        left(&node.host, "vm-1")
    );
    let again = node.done("t-again", "vm.terminate", &json!({"vm_id": "vm-1"}));
    assert_eq!(
        (again["existed"].as_bool(), again["verified"].as_bool()),
        (Some(false), Some(true))
    );
}

#[test]
fn a_machine_that_does_not_obey_is_killed_and_one_that_crashes_is_noticed_at_once() {
    let dir = place();
    let node = Node::start(dir.path());
    let stubborn = json!({"user_data": "#cloud-config\nstubborn: true\n"});
    node.done("task-1", "vm.launch", &launch("vm-s", &stubborn));
    let ended = node.done(
        "task-2",
        "vm.terminate",
        &json!({"vm_id": "vm-s", "graceful_timeout_seconds": 1}),
    );
    assert_eq!(ended["hard_stopped"], true);
    assert!(left(&node.host, "vm-s").is_empty());
    // Ready or not is of no interest here.
    let made = node.done(
        "task-3",
        "vm.launch",
        &launch("vm-c", &json!({"ready_line": null})),
    );
    until("it is looked after", Duration::from_secs(60), || node.held() == 1);
    let pid = rustix_pid(made["pid"].as_u64().unwrap());
    std::process::Command::new("kill")
        .args(["-9", &pid])
        .status()
        .unwrap();
    let took = until("a crash is noticed", Duration::from_secs(30), || node.held() == 0);
    println!("crash noticed and cleaned up after {took:?}");
    assert!(
        left(&node.host, "vm-c").is_empty(),
        "{:?}",
        left(&node.host, "vm-c")
    );
}

fn rustix_pid(pid: u64) -> String {
    pid.to_string()
}

#[test]
fn a_machine_is_gone_at_the_end_of_its_lease_and_one_that_shuts_down_leaves_nothing() {
    let dir = place();
    let node = Node::start(dir.path());
    let begun = std::time::Instant::now();
    let stubborn = json!({"user_data": "#!stubborn", "lease_seconds": 60, "ready_line": null});
    node.done("task-1", "vm.launch", &launch("vm-l", &stubborn));
    let off = json!({"user_data": "#!off", "ready_line": null});
    node.done("task-2", "vm.launch", &launch("vm-o", &off));
    assert_eq!(processes(&node.host).len(), 2);
    until("the lease ends", Duration::from_secs(120), || {
        !left(&node.host, "vm-l").iter().any(|l| l.contains("vm-l"))
    });
    println!("lease of 60 s: gone after {:?}", begun.elapsed());
    assert!(begun.elapsed() >= Duration::from_secs(59));
    until("its own shutdown is noticed", Duration::from_secs(300), || {
        node.held() == 0
    });
    assert!(
        left(&node.host, "vm-o").is_empty(),
        "{:?}",
        left(&node.host, "vm-o")
    );
}
