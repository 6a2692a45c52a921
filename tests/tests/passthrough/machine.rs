//! The emulated machine: QEMU without KVM, this host's own files through virtiofs (read only, written to in its memory),
//! and the test itself as what it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hpc_tests::process::Process;
use hpc_tests::program::{self, root};

use super::guest::{self, Recipe};
use super::host;
use super::node::until;

/// Set in the process that is inside.
const INSIDE: &str = "HPC_TEST_PASSTHROUGH_INSIDE";
/// Its first file system: enough to see this host's.
const RAMDISK: Recipe = Recipe {
    name: "emulated",
    init: include_str!("init.sh"),
    modules: &["virtio_pci", "virtiofs", "overlay"],
    programs: &[],
    disk_mib: 0,
};
/// Bytes of each NVMe namespace.
const DISK: u64 = 96 << 20;
/// Everything is emulated, some of it twice.
const LIMIT: Duration = Duration::from_secs(2400);
/// An IOMMU, two NUMA nodes, on each a root port with NVMe; on the second one virtual functions, and a graphics function.
const DEVICES: [&str; 14] = [
    "intel-iommu,intremap=on",
    "pxb-pcie,id=here,bus=pcie.0,bus_nr=64,numa_node=0",
    "pcie-root-port,id=near,bus=here,chassis=1",
    "pxb-pcie,id=far,bus=pcie.0,bus_nr=128,numa_node=1",
    "pcie-root-port,id=far-disk,bus=far,chassis=2",
    "pcie-root-port,id=far-gpu,bus=far,chassis=3,slot=1",
    "nvme,id=disk0,bus=near,serial=HPC-NEAR",
    "nvme-ns,bus=disk0,drive=ns0",
    "nvme-subsys,id=subsystem,nqn=hpc-far",
    "nvme,id=disk1,bus=far-disk,serial=HPC-FAR,subsys=subsystem,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2",
    "nvme-ns,bus=disk1,drive=ns1",
    "VGA,bus=far-gpu,romfile=",
    "virtio-rng-pci,bus=pcie.0",
    "vhost-user-fs-pci,bus=pcie.0,chardev=host,tag=host,queue-size=256",
];

/// Runs `test` inside. The name is the test's own.
pub(crate) fn inside(test_name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    // What the machine in the machine is made of; made here, where the network is.
    host::image();
    let folder = root().join("target/test/passthrough");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    let ramdisk = folder.join("ramdisk");
    let kernel = guest::kernel_and_ramdisk(&RAMDISK, &ramdisk);
    for n in 0..2 {
        let disk = fs::File::create(folder.join(format!("disk{n}"))).unwrap();
        disk.set_len(DISK).unwrap();
    }
    script(&folder, &kernel, test_name);
    let _files = share(&folder);
    let mut qemu = start(&folder, &kernel, &ramdisk);
    let said = folder.join("said.log");
    let read = || String::from_utf8_lossy(&fs::read(&said).unwrap_or_default()).replace('\r', "");
    let mut shown = 0;
    until("the emulated machine's test", LIMIT, || {
        let text = read();
        if let Some(more) = text.get(shown..) {
            print!("{more}");
            shown = text.len();
        }
        text.lines().any(|l| l.starts_with("end ")) || qemu.check_alive().is_err()
    });
    let text = read();
    let console =
        String::from_utf8_lossy(&fs::read(folder.join("console.log")).unwrap_or_default()).into_owned();
    let tail: Vec<&str> = console.lines().rev().take(40).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    assert!(text.lines().any(|l| l == "end 0"), "{}\n{text}", tail.join("\n"));
}

fn script(folder: &Path, kernel: &Path, test_name: &str) {
    let version = kernel
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .trim_start_matches("vmlinuz-");
    let modules = root().join("target/guest/tiny/kernel/lib/modules").join(version);
    let runs = std::env::var("HPC_TEST_RUNS").unwrap_or_default();
    let programs = program::path("virtengine-provider").unwrap();
    let words = [
        "env".to_owned(),
        format!("{INSIDE}=1"),
        format!("HPC_TEST_RUNS={runs}"),
        format!("HPC_BIN_DIR={}", programs.parent().unwrap().display()),
        "RUST_BACKTRACE=1".to_owned(),
        std::env::current_exe().unwrap().display().to_string(),
        "--exact".to_owned(),
        test_name.to_owned(),
        "--nocapture".to_owned(),
        "--test-threads=1".to_owned(),
    ];
    let quoted = |p: &str| format!("'{p}'");
    let words: Vec<String> = words.iter().map(|w| quoted(w)).collect();
    let head = format!(
        "TEST=({})\nMODULES={}\nHERE={}\n",
        words.join(" "),
        quoted(modules.to_str().unwrap()),
        quoted(root().to_str().unwrap())
    );
    fs::write(folder.join("stage.sh"), head + include_str!("stage.sh")).unwrap();
}

/// This host's files, for the machine.
fn share(folder: &Path) -> Process {
    let program = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"]
        .map(PathBuf::from)
        .into_iter()
        .find(|p| p.exists())
        .expect("apt-get install qemu-system-common");
    let socket = folder.join("files.sock");
    let mut command = Command::new(program);
    command
        .arg(format!("--socket-path={}", socket.display()))
        // As many files as may be open already: more is not ours to ask for.
        .args(["--rlimit-nofile=0", "-o", "source=/,cache=always,sandbox=chroot"]);
    let process = Process::start("virtiofsd", command, &folder.join("files.log")).unwrap();
    until("virtiofsd listens", Duration::from_secs(20), || socket.exists());
    process
}

fn start(folder: &Path, kernel: &Path, ramdisk: &Path) -> Process {
    let words = format!(
        "console=ttyS0 quiet panic=-1 intel_iommu=on iommu=pt script={}",
        folder.join("stage.sh").display()
    );
    let mut qemu = Command::new("nice");
    qemu.args([
        "-n",
        "5",
        "qemu-system-x86_64",
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
    ])
    .args(["-cpu", "qemu64", "-smp", "2", "-m", "2304"])
    .args(["-nodefaults", "-display", "none", "-no-reboot"])
    .arg("-kernel")
    .arg(kernel)
    .arg("-initrd")
    .arg(ramdisk)
    .args(["-append", &words])
    .args([
        "-chardev",
        &format!("socket,id=host,path={}", folder.join("files.sock").display()),
    ])
    .args([
        "-serial",
        &format!("file:{}", folder.join("console.log").display()),
    ])
    .args(["-serial", &format!("file:{}", folder.join("said.log").display())])
    .stdin(Stdio::null());
    for n in 0..2 {
        // virtiofs wants memory that its other half can see.
        let memory = format!("memory-backend-memfd,id=m{n},size=1152M,share=on");
        let numa = format!("node,nodeid={n},cpus={n},memdev=m{n}");
        let drive = format!(
            "file={},if=none,format=raw,id=ns{n}",
            folder.join(format!("disk{n}")).display()
        );
        qemu.args(["-object", &memory, "-numa", &numa, "-drive", &drive]);
    }
    for device in DEVICES {
        qemu.args(["-device", device]);
    }
    Process::start("qemu", qemu, &folder.join("qemu.log")).unwrap()
}
