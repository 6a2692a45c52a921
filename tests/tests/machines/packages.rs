//! Hosts of both families: what the node asks of dnf and of apt-get, to the word. Both, with rpm and dpkg-query, are
//! stand-ins that write down how they are called; all else is what production runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hpc_schema::task::{TaskOutcome, TaskResult};
use serde_json::{Value, json};

use super::node::{Apart, place, task};

/// What a Debian has, and what slices need: none of it is there.
const WITHOUT: [&str; 14] = [
    "apt-get",
    "dpkg-query",
    "dnf",
    "rpm",
    "virsh",
    "virt-install",
    "qemu-img",
    "xorriso",
    "ssh",
    "blkdiscard",
    "ovs-vsctl",
    "curl",
    "prlimit",
    "qemu-system-x86_64",
];
/// Packages of that family that have them.
const PACKAGES: [&str; 8] = [
    "libvirt-client",
    "virt-install",
    "qemu-img",
    "xorriso",
    "openssh-clients",
    "util-linux",
    "openvswitch",
    "curl",
];

/// The same of Debian's.
const APT_PACKAGES: [&str; 8] = [
    "libvirt-clients",
    "virtinst",
    "qemu-utils",
    "xorriso",
    "openssh-client",
    "util-linux",
    "openvswitch-switch",
    "curl",
];

/// dnf that writes down its words and its environment, and "installs" the programs of these packages; rpm that knows what
/// it did.
fn stand_ins(dir: &Path) {
    let here = dir.display();
    let dnf = format!(
        r#"#!/bin/bash
{{ printf 'word %s\n' "$@"; sed 's/\x0/\n/g' /proc/$$/environ | sed '/^$/d; s/^/env /'; echo end; }} >>{here}/asked
for p in "${{@:4}}"; do
    echo "$p" >>{here}/there
    case $p in
    libvirt-client) made=virsh ;; openssh-clients) made=ssh ;; openvswitch) made=ovs-vsctl ;;
    util-linux) made="blkdiscard prlimit" ;; *) made=$p ;;
    esac
    for m in $made; do echo >"/usr/bin/$m"; done
done
"#
    );
    let rpm = format!("#!/bin/bash\n[[ $1 == --query && $# == 2 ]] && grep -qx -- \"$2\" {here}/there\n");
    put(dir, &[("dnf", dnf), ("rpm", rpm)]);
}

/// The same of Debian's family.
fn apt_stand_ins(dir: &Path) {
    let here = dir.display();
    let apt = format!(
        r#"#!/bin/bash
{{ printf 'word %s\n' "$@"; sed 's/\x0/\n/g' /proc/$$/environ | sed '/^$/d; s/^/env /'; echo end; }} >>{here}/asked
while [[ $1 != install ]]; do shift; done
for p in "${{@:2}}"; do
    echo "$p" >>{here}/there
    case $p in
    libvirt-clients) made=virsh ;; virtinst) made=virt-install ;; qemu-utils) made=qemu-img ;;
    openssh-client) made=ssh ;; openvswitch-switch) made=ovs-vsctl ;;
    util-linux) made="blkdiscard prlimit" ;; *) made=$p ;;
    esac
    for m in $made; do echo >"/usr/bin/$m"; done
done
"#
    );
    let query = format!(
        "#!/bin/bash\n[[ $1 == --show && $2 == '--showformat=${{db:Status-Status}}' && $# == 3 ]] || exit 2\n\
         grep -qx -- \"$3\" {here}/there && printf installed\n"
    );
    put(dir, &[("apt-get", apt), ("dpkg-query", query)]);
}

fn put(dir: &Path, programs: &[(&str, String)]) {
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, text) in programs {
        fs::write(bin.join(name), text).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(dir.join("there"), "coreutils\n").unwrap();
}

fn policy(dir: &Path, packages: &[&str], install: bool) {
    let names = packages.join(", ");
    let text = format!(
        "mode: slice\ntypes: [slice.vm_provision, node.prerequisites_install]\npackages: [coreutils, {names}]\n\
         slices: {{devices: [/dev/loop], install_dependencies: {install}}}\n"
    );
    fs::write(dir.join("policy.yaml"), text).unwrap();
}

/// How often the package manager was called, its words, and the names in its environment.
fn asked(dir: &Path) -> (usize, Vec<String>, Vec<String>) {
    let text = fs::read_to_string(dir.join("asked")).unwrap_or_default();
    let of = |what: &str| {
        text.lines()
            .filter_map(|l| l.strip_prefix(what))
            .map(str::to_owned)
            .collect()
    };
    let names = |all: Vec<String>| {
        all.iter()
            .map(|l| l.split('=').next().unwrap().to_owned())
            .collect()
    };
    (
        text.lines().filter(|l| *l == "end").count(),
        of("word "),
        names(of("env ")),
    )
}

fn provision() -> Value {
    json!({
        "allocation_id": "alloc-1", "vm_name": "vm-1", "image_path": "/var/lib/libvirt/images/a.img",
        "image_sha256": "a".repeat(64), "driver_strategy": "none", "default_username": "alice",
        "ssh_public_keys": [format!("ssh-ed25519 {}", "A".repeat(68))], "ovs_bridge": "br-slice",
        "slots": [{
            "slot_id": "slot-0", "slot_index": 0, "nvme_device": "/dev/loop0", "vcpu_count": 1, "memory_mib": 128,
            "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16",
        }],
    })
}

fn carried_out(node: &mut Apart, id: &str, kind: &str, params: &Value) -> TaskResult {
    node.deliver(&task(id, kind, params));
    node.result().expect("no result")
}

#[test]
fn on_an_rpm_host_dnf_is_asked_for_what_is_missing_where_the_site_lets_it_be() {
    let dir = place();
    stand_ins(dir.path());
    policy(dir.path(), &PACKAGES, false);
    let mut node = Apart::with_programs(dir.path(), &WITHOUT);
    // Not allowed: the list, and who installs it.
    let refused = carried_out(&mut node, "task-1", "slice.vm_provision", &provision());
    let detail = refused.detail.clone().unwrap_or_default();
    assert_eq!(refused.code.as_deref(), Some("not_supported"), "{detail}");
    for word in PACKAGES
        .iter()
        .chain(&["virsh", "blkdiscard", "node.prerequisites_install", "approval"])
    {
        assert!(detail.contains(word), "{word}: {detail}");
    }
    assert_eq!(asked(dir.path()).0, 0);
    // By a task of its own: what is there is not asked for.
    let params = json!({"packages": ["coreutils", "xorriso"]});
    let done = carried_out(&mut node, "task-2", "node.prerequisites_install", &params);
    assert_eq!(done.outcome, TaskOutcome::Completed, "{:?}", done.detail);
    let value: Value = serde_json::from_str(done.result.get()).unwrap();
    assert_eq!(
        (&value["manager"], &value["present"], &value["installed"]),
        (&json!("dnf"), &json!(["coreutils"]), &json!(["xorriso"]))
    );
    let (times, words, mut names) = asked(dir.path());
    assert_eq!(
        (times, words.join(" ").as_str()),
        (1, "--quiet --assumeyes install xorriso")
    );
    names.sort();
    assert_eq!(names, ["DEBIAN_FRONTEND", "LC_ALL", "PATH"]);
    let again = carried_out(&mut node, "task-3", "node.prerequisites_install", &params);
    assert_eq!(again.outcome, TaskOutcome::Completed);
    assert_eq!(asked(dir.path()).0, 1, "what is there was installed again");
    node.kill();
    // Allowed: a provision installs all that it lacks, and goes on.
    let dir = place();
    stand_ins(dir.path());
    policy(dir.path(), &PACKAGES, true);
    let mut node = Apart::with_programs(dir.path(), &WITHOUT);
    let failed = carried_out(&mut node, "task-4", "slice.vm_provision", &provision());
    let detail = failed.detail.clone().unwrap_or_default();
    // A machine's QEMU is no program of slices: here the next phase finds none.
    assert!(detail.contains("qemu-system"), "{detail}");
    let value: Value = serde_json::from_str(failed.result.get()).unwrap();
    assert!(value["timings"]["host_dependencies"].is_u64(), "{value}");
    let (times, words, _) = asked(dir.path());
    assert_eq!(times, 1);
    assert_eq!(
        words.join(" "),
        format!("--quiet --assumeyes install {}", PACKAGES.join(" "))
    );
    node.kill();
}

#[test]
fn on_a_debian_apt_get_is_asked_for_what_is_missing_where_the_site_lets_it_be() {
    let dir = place();
    apt_stand_ins(dir.path());
    policy(dir.path(), &APT_PACKAGES, false);
    let mut node = Apart::with_programs(dir.path(), &WITHOUT);
    let refused = carried_out(&mut node, "task-1", "slice.vm_provision", &provision());
    let detail = refused.detail.clone().unwrap_or_default();
    assert_eq!(refused.code.as_deref(), Some("not_supported"), "{detail}");
    assert!(APT_PACKAGES.iter().all(|p| detail.contains(p)), "{detail}");
    assert_eq!(asked(dir.path()).0, 0);
    node.kill();
    let dir = place();
    apt_stand_ins(dir.path());
    policy(dir.path(), &APT_PACKAGES, true);
    let mut node = Apart::with_programs(dir.path(), &WITHOUT);
    let failed = carried_out(&mut node, "task-2", "slice.vm_provision", &provision());
    let detail = failed.detail.clone().unwrap_or_default();
    // All of them are there: the next phase lacks a machine's QEMU.
    assert!(detail.contains("qemu-system"), "{detail}");
    let (times, words, mut names) = asked(dir.path());
    assert_eq!(times, 1);
    assert_eq!(
        words.join(" "),
        format!(
            "--quiet --yes --no-install-recommends -o Dpkg::Options::=--force-confold -o DPkg::Lock::Timeout=300 install {}",
            APT_PACKAGES.join(" ")
        )
    );
    names.sort();
    assert_eq!(names, ["DEBIAN_FRONTEND", "LC_ALL", "PATH"]);
    node.kill();
}
