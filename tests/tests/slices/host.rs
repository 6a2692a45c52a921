//! A host for slices: namespaces in which libvirt, Open vSwitch and dnsmasq run as they do on a node, and which take
//! everything with them when they end. Disks of slots are loop devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use hpc_tests::deadline::{self, Deadline};
use hpc_tests::program::{self, root};
use serde_json::{Value, json};

use super::guest::{self, Guest, Recipe};

/// Set in the process that is inside.
const INSIDE: &str = "HPC_TEST_SLICES_INSIDE";
/// The guest's kernel and what SSH, a file system and cloud-init's part need.
const GUEST: Recipe = Recipe {
    name: "slice",
    init: include_str!("init.sh"),
    modules: &[
        "virtio_pci",
        "virtio_blk",
        "virtio_net",
        "isofs",
        "ext4",
        "evdev",
        "button",
    ],
    programs: &["/usr/sbin/dropbear", "/usr/bin/dropbearconvert"],
    disk_mib: 32,
};
pub(crate) const BRIDGE: &str = "br-slice";
/// Of the machine's card, and what is reserved for it.
const MAC: &str = "52:54:00:5a:1c:e1";
pub(crate) const ADDRESS: &str = "10.77.0.16";
/// Bytes of a slot's disk.
const DISK: u64 = 96 << 20;
/// Folders that are the host's own inside.
const OWN: [&str; 7] = [
    "/etc/libvirt",
    "/var/lib/libvirt",
    "/run",
    "/var/log",
    "/var/cache/libvirt",
    "/etc/openvswitch",
    "/var/lib/openvswitch",
];

/// What the guest is made of; made outside, where the network is.
pub(crate) fn image() -> &'static Guest {
    static IMAGE: OnceLock<Guest> = OnceLock::new();
    IMAGE.get_or_init(|| guest::make(&GUEST))
}

/// Runs `test` inside. The name is the test's own.
pub(crate) fn inside(test_name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        let _deadline = Deadline::of_test();
        prepare(|| {});
        return test();
    }
    image();
    let backing = backing(test_name);
    let programs = program::path("virtengine-provider").unwrap();
    // All that is built is there.
    let _deadline = Deadline::of_test();
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ])
        // The first process of a namespace has to reap: libvirt waits for each that it has ended.
        .args(["bash", "-c", "\"$@\"; exit $?", "bash"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test_name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env("HPC_BIN_DIR", programs.parent().unwrap());
    let status = command.status().expect("apt-get install util-linux");
    // Loop devices are in no namespace.
    for line in text(&run("losetup", &["--noheadings", "--output", "NAME,BACK-FILE"])).lines() {
        if line.contains(backing.to_str().unwrap())
            && let Some(device) = line.split_whitespace().next()
        {
            Command::new("losetup").args(["-d", device]).status().unwrap();
        }
    }
    fs::remove_dir_all(backing).ok();
    assert!(status.success(), "{test_name}: {status}");
}

fn backing(test_name: &str) -> PathBuf {
    root()
        .join("target/test/slices")
        .join(test_name.replace("::", "-"))
}

/// Runs a program that has to end well.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Output {
    let out = deadline::output(Command::new(name).args(arguments), Duration::from_secs(300));
    let out = out.unwrap_or_else(|e| panic!("{name}: {e}; apt-get install it, or scripts/test --install"));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{name} {arguments:?}: {err}");
    out
}

pub(crate) fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Folders, then what the caller needs in them, then the services.
pub(crate) fn prepare(between: impl FnOnce()) {
    run("mount", &["--make-rprivate", "/"]);
    for folder in OWN {
        fs::create_dir_all(folder).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", folder]);
    }
    for folder in [
        "/run/openvswitch",
        "/var/log/openvswitch",
        "/var/log/libvirt/qemu",
        "/run/lock",
        "/run/dhcp",
        "/run/telemetry",
    ] {
        fs::create_dir_all(folder).unwrap();
    }
    run("ip", &["link", "set", "lo", "up"]);
    between();
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    run("ovsdb-tool", &["create", "/etc/openvswitch/conf.db", schema]);
    run(
        "ovsdb-server",
        &[
            "--remote=punix:/run/openvswitch/db.sock",
            "--detach",
            "--no-chdir",
            "--pidfile",
            "--log-file",
            "-vconsole:off",
            "/etc/openvswitch/conf.db",
        ],
    );
    run("ovs-vsctl", &["--no-wait", "init"]);
    run(
        "ovs-vswitchd",
        &[
            "--detach",
            "--no-chdir",
            "--pidfile",
            "--log-file",
            "-vconsole:off",
        ],
    );
    // The kernel here may have no Open vSwitch: its own datapath does.
    run(
        "ovs-vsctl",
        &[
            "--timeout=20",
            "add-br",
            BRIDGE,
            "--",
            "set",
            "bridge",
            BRIDGE,
            "datapath_type=netdev",
        ],
    );
    run("ip", &["addr", "add", "10.77.0.1/24", "dev", BRIDGE]);
    run("ip", &["link", "set", BRIDGE, "up"]);
    run(
        "dnsmasq",
        &[
            "--conf-file=/dev/null",
            "--port=0",
            "--bind-interfaces",
            "--dhcp-range=10.77.0.0,static",
            "--dhcp-hostsdir=/run/dhcp",
            "--pid-file=/run/dnsmasq.pid",
            "--dhcp-leasefile=/run/leases",
            "--log-facility=/var/log/dnsmasq.log",
            &format!("--interface={BRIDGE}"),
        ],
    );
    // The control groups here are whoever's; a node's libvirt has its own.
    fs::write(
        "/etc/libvirt/qemu.conf",
        "cgroup_controllers = [ ]\nstdio_handler = \"file\"\n",
    )
    .unwrap();
    fs::write("/etc/libvirt/libvirtd.conf", "auth_unix_rw = \"none\"\n").unwrap();
    run("virtlogd", &["-d"]);
    run("libvirtd", &["-d", "-f", "/etc/libvirt/libvirtd.conf"]);
    super::node::until("libvirt answers", Duration::from_secs(60), || {
        Command::new("virsh")
            .args(["-c", "qemu:///system", "list"])
            .output()
            .unwrap()
            .status
            .success()
    });
}

/// A slot with a disk of its own.
pub(crate) struct Slot {
    pub(crate) device: String,
    pub(crate) spec: Value,
}

impl Slot {
    pub(crate) fn new(test_name: &str) -> Self {
        let folder = backing(test_name);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("disk");
        fs::File::create(&file).unwrap().set_len(DISK).unwrap();
        let device = text(&run("losetup", &["--find", "--show", file.to_str().unwrap()]))
            .trim()
            .to_owned();
        let spec = json!({
            "slot_id": "slot-0", "slot_index": 0, "nvme_device": device, "vcpu_count": 1, "memory_mib": 192,
            "mac_address": MAC, "private_ip": ADDRESS,
        });
        Self { device, spec }
    }

    /// Whether every byte of the disk is zero; all of them are read.
    pub(crate) fn is_zero(&self) -> bool {
        let bytes = fs::read(&self.device).unwrap();
        assert_eq!(u64::try_from(bytes.len()).unwrap(), DISK);
        bytes.iter().all(|b| *b == 0)
    }

    /// What was there before.
    pub(crate) fn soil(&self) {
        let bytes = vec![0xa5u8; usize::try_from(DISK).unwrap()];
        fs::write(&self.device, bytes).unwrap();
        run("sync", &[]);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        Command::new("losetup").args(["-d", &self.device]).status().ok();
    }
}

/// Parameters of `slice.vm_provision`.
pub(crate) fn provision(slot: &Slot, key: &str) -> Value {
    json!({
        "allocation_id": "alloc-1", "vm_name": "vm-1", "image_path": image().image, "image_sha256": image().sha256,
        "image_format": "raw", "driver_strategy": "none", "default_username": "alice", "ssh_public_keys": [key],
        "slots": [slot.spec], "ovs_bridge": BRIDGE, "accel": "tcg", "ready_timeout_seconds": 240,
        "performance": {"cpu_events_per_second": 1, "memory_mib_per_second": 1, "disk_read_mib_per_second": 1, "disk_write_mib_per_second": 1},
    })
}

/// The site's policy, as a file.
pub(crate) fn policy(more: &str) -> String {
    let (folder, kernel) = (
        image().image.parent().unwrap().display(),
        image().kernel.display(),
    );
    format!(
        "mode: slice\nmachines: {{image_directories: [{folder}], probe_kernel: {kernel}, reserve_memory_mib: 0{more}}}\n\
         slices: {{devices: [/dev/loop], dhcp_hosts: /run/dhcp, telemetry: /run/telemetry, exporter_port: 9100}}\n"
    )
}

/// Where it is kept what is known of accelerators: the probe is not what is tested here.
fn known() -> PathBuf {
    root().join("target/test/slices-accel.json")
}

/// Tells a node's task domain what others have seen of accelerators.
pub(crate) fn know(tasks: &Path) {
    fs::create_dir_all(tasks).unwrap();
    if known().exists() {
        fs::copy(known(), tasks.join("accel.json")).unwrap();
    }
}

/// Keeps what it has seen itself.
pub(crate) fn remember(tasks: &Path) {
    let seen = tasks.join("accel.json");
    if seen.exists() {
        fs::create_dir_all(known().parent().unwrap()).unwrap();
        fs::copy(seen, known()).unwrap();
    }
}

/// A key of a tenant: the file of the secret one, and the public one.
pub(crate) fn tenant() -> (PathBuf, String) {
    let path = PathBuf::from("/run/tenant");
    if !path.exists() {
        run(
            "ssh-keygen",
            &[
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "tenant",
                "-f",
                path.to_str().unwrap(),
            ],
        );
    }
    let public = fs::read_to_string("/run/tenant.pub").unwrap().trim().to_owned();
    (path, public)
}

/// What of slices is on this host, below this folder of a task domain and elsewhere.
pub(crate) fn left(tasks: &Path) -> Vec<String> {
    let mut left: Vec<String> = ["slices", "leases"]
        .iter()
        .map(|name| tasks.join(name))
        .chain(["/run/dhcp".into(), "/run/telemetry".into()])
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten())
        .map(|e| e.unwrap().path().display().to_string())
        .collect();
    let domains = run(
        "virsh",
        &["-q", "-c", "qemu:///system", "list", "--all", "--name"],
    );
    let pools = run(
        "virsh",
        &["-q", "-c", "qemu:///system", "pool-list", "--all", "--name"],
    );
    left.extend(text(&pools).split_whitespace().map(|p| format!("pool {p}")));
    left.extend(text(&domains).split_whitespace().map(|d| format!("domain {d}")));
    for process in fs::read_dir("/proc").unwrap().map(|e| e.unwrap().path()) {
        let read = |name: &str| fs::read(process.join(name)).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if line.contains("qemu-system")
            || String::from_utf8_lossy(&read("environ")).contains("VIRTENGINE_TASK=")
        {
            left.push(format!("process {line}"));
        }
    }
    left
}
