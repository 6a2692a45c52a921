//! A guest of 24 MiB: Debian's cloud kernel, a busybox that reads its NoCloud seed, says that it is ready, and obeys
//! the power button. Boots from its disk, by GRUB, as any image does.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hpc_tests::program::root;
use sha2::{Digest, Sha256};

/// What it says when it is up.
pub(crate) const READY: &str = "guest ready";
const PACKAGE: &str = "linux-image-cloud-amd64";
/// In this order; each finds what it needs loaded.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_blk", "isofs", "evdev", "button"];

/// What `user-data` can make it do, by a word in it.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
for m in /lib/*.ko; do /bin/busybox insmod $m; done
exec >/dev/ttyS0 2>&1 </dev/ttyS0
for d in /dev/vd?; do
    /bin/busybox mount -t iso9660 -o ro $d /seed 2>/dev/null || continue
    [ -f /seed/meta-data ] && break
    /bin/busybox umount /seed
done
does() { /bin/busybox grep -q "$1" /seed/user-data; }
echo "meta: $(/bin/busybox cat /seed/meta-data)"
/bin/busybox dd if=/dev/zero of=/dev/vda bs=1M count=2 conv=fsync 2>/dev/null && echo written
[ -e /sys/class/net/eth0 ] && echo has-network
does off && /bin/busybox poweroff -f
if ! does stubborn; then
    for e in /dev/input/event*; do
        (/bin/busybox head -c 24 $e >/dev/null && /bin/busybox poweroff -f) &
    done
    /bin/busybox sleep 1
fi
does mute || echo guest ready
while :; do /bin/busybox sleep 100; done
"#;

/// The image, its kernel, and the digest of the image.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) image: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) sha256: String,
}

/// Made once for each kernel and `INIT`; copies of this program find what the first has made.
pub(crate) fn guest() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(|| {
        let folder = root().join("target/guest/tiny");
        fs::create_dir_all(&folder).unwrap();
        // Copies of this program want it too.
        let lock = fs::File::create(folder.join("lock")).unwrap();
        lock.lock().unwrap();
        let kernel = kernel(&folder);
        let key = hex(format!("{INIT}{}", kernel.display()).as_bytes());
        let images = folder.join("images");
        let image = images.join(format!("tiny-{}.img", &key[..12]));
        if !image.exists() {
            build(&folder, &kernel, &image);
        }
        let sha256 = hex(&fs::read(&image).unwrap());
        Guest {
            image,
            kernel,
            sha256,
        }
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let out = Command::new(program).args(arguments).current_dir(folder).output();
    let out = out.unwrap_or_else(|e| panic!("{program}: {e}; apt-get install it, or scripts/test --install"));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {arguments:?}: {err}");
    String::from_utf8(out.stdout).unwrap()
}

/// Debian's newest cloud kernel, unpacked; nothing is installed.
fn kernel(folder: &Path) -> PathBuf {
    let find = || {
        let boot = folder.join("kernel/boot");
        let mut all: Vec<PathBuf> = fs::read_dir(boot)
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().path())
            .collect();
        all.retain(|p| p.file_name().unwrap().to_str().unwrap().starts_with("vmlinuz-"));
        all.pop()
    };
    if let Some(found) = find() {
        return found;
    }
    let depends = run("apt-cache", &["depends", PACKAGE], folder);
    let name = depends
        .split_whitespace()
        .find(|w| w.starts_with("linux-image-"))
        .unwrap_or(PACKAGE);
    let name = depends
        .lines()
        .find_map(|l| l.trim().strip_prefix("Depends: "))
        .unwrap_or(name);
    run("apt-get", &["download", "-q", name], folder);
    let package = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let package = package
        .filter(|p| p.extension().is_some_and(|e| e == "deb"))
        .last()
        .unwrap();
    run("dpkg-deb", &["-x", package.to_str().unwrap(), "kernel"], folder);
    find().expect("the package has no kernel")
}

fn build(folder: &Path, kernel: &Path, image: &Path) {
    let name = kernel.file_name().unwrap().to_str().unwrap();
    let version = name.strip_prefix("vmlinuz-").unwrap();
    run("depmod", &["-b", "kernel", version], folder);
    let root = folder.join("root");
    fs::remove_dir_all(&root).ok();
    for dir in ["bin", "dev", "proc", "sys", "seed", "lib"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("apt-get install busybox-static");
    symlink("busybox", root.join("bin/sh")).unwrap();
    fs::write(root.join("init"), INIT).unwrap();
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut order: Vec<String> = Vec::new();
    for module in MODULES {
        let needed = run(
            "modprobe",
            &["-d", "kernel", "-S", version, "--show-depends", module],
            folder,
        );
        for line in needed.lines().filter_map(|l| l.strip_prefix("insmod ")) {
            let path = line.split_whitespace().next().unwrap().to_owned();
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    for (n, path) in order.iter().enumerate() {
        let name = Path::new(path).file_name().unwrap().to_str().unwrap();
        fs::copy(folder.join(path), root.join(format!("lib/{n:02}-{name}"))).unwrap();
    }
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    let iso = folder.join("iso/boot/grub");
    fs::create_dir_all(&iso).unwrap();
    run(
        "sh",
        &[
            "-c",
            "cd root && find . | cpio -o -H newc --quiet | gzip -1 > ../iso/boot/initrd",
        ],
        folder,
    );
    fs::copy(kernel, folder.join("iso/boot/vmlinuz")).unwrap();
    let menu = "set timeout=0\nlinux /boot/vmlinuz console=ttyS0 quiet panic=-1\ninitrd /boot/initrd\nboot\n";
    fs::write(iso.join("grub.cfg"), menu).unwrap();
    let fresh = image.with_extension("new");
    run("grub-mkrescue", &["-o", fresh.to_str().unwrap(), "iso"], folder);
    fs::rename(fresh, image).unwrap();
    for path in [image, image.parent().unwrap()] {
        let mode = if path == image { 0o644 } else { 0o755 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}
