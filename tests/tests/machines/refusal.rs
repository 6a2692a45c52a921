use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::accel::remember;
use super::guest::{guest, hex};
use super::node::{Node, host, launch, left, place};

/// An image beside the guest's, of this run alone.
fn image(name: &str, make: impl FnOnce(&Path)) -> (std::path::PathBuf, String) {
    let path = guest()
        .image
        .with_file_name(format!("{name}-{}", std::process::id()));
    make(&path);
    let digest = hex(&fs::read(&path).unwrap_or_default());
    (path, digest)
}

#[test]
fn what_is_not_allowed_not_sound_or_not_there_is_refused_by_its_code_and_leaves_nothing() {
    let dir = place();
    let host = host(dir.path());
    remember(&host);
    let node = Node::on(host);
    let secret = dir.path().join("secret.img");
    fs::write(&secret, [1u8; 1024]).unwrap();
    let (backed, backed_sha) = image("backed.qcow2", |p| {
        let made = Command::new("qemu-img")
            .args([
                "create",
                "-q",
                "-u",
                "-f",
                "qcow2",
                "-F",
                "raw",
                "-b",
                "/etc/shadow",
            ])
            .arg(p)
            .arg("1M")
            .status();
        assert!(made.unwrap().success());
    });
    let (link, _) = image("link.img", |p| symlink(&secret, p).unwrap());
    let traversal = format!("{}/../images/x.img", guest().image.parent().unwrap().display());
    let sha = hex(&[1u8; 1024]);
    let cases: Vec<(&str, Value, &str)> = vec![
        (
            "another digest",
            json!({"image_sha256": "0".repeat(64)}),
            "digest_mismatch",
        ),
        (
            "outside",
            json!({"image_path": secret, "image_sha256": sha}),
            "policy_denied",
        ),
        ("no image", json!({"image_path": "/etc/passwd"}), "policy_denied"),
        ("traversal", json!({"image_path": traversal}), "invalid_field"),
        (
            "a link",
            json!({"image_path": link, "image_sha256": sha}),
            "task_failed",
        ),
        (
            "a backing file",
            json!({"image_path": backed, "image_sha256": backed_sha, "image_format": "qcow2"}),
            "invalid_field",
        ),
        (
            "a qcow2 as raw",
            json!({"image_path": backed, "image_sha256": backed_sha}),
            "invalid_field",
        ),
        ("no qcow2", json!({"image_format": "qcow2"}), "invalid_field"),
        ("999 processors", json!({"vcpu_count": 999}), "policy_denied"),
        (
            "more processors than there are",
            json!({"vcpu_count": 256}),
            "resource_busy",
        ),
        (
            "more memory than there is",
            json!({"memory_mib": 2_000_000}),
            "resource_busy",
        ),
        ("this host's network", json!({"network": "user"}), "policy_denied"),
        (
            "a lease without end",
            json!({"lease_seconds": 2_500_000}),
            "policy_denied",
        ),
        ("an option as a name", json!({"vm_id": "-smp"}), "invalid_field"),
        ("a path as a name", json!({"vm_id": "../x"}), "invalid_field"),
        (
            "another file to remove",
            json!({"overlay_path": "/etc/passwd"}),
            "invalid_field",
        ),
    ];
    for (n, (what, change, code)) in cases.into_iter().enumerate() {
        let result = node.run(&format!("task-{n}"), "vm.launch", &launch("vm-r", &change));
        assert_eq!(result.code.as_deref(), Some(code), "{what}: {:?}", result.detail);
        assert!(
            left(&node.host, "vm-r").is_empty(),
            "{what}: {:?}",
            left(&node.host, "vm-r")
        );
    }
    for path in [backed, link] {
        fs::remove_file(path).unwrap();
    }
    assert!(Path::new("/etc/passwd").exists());
}
