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
for m in /lib/modules/*.ko; do /bin/busybox insmod $m; done
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

/// What a guest is made of beside busybox.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    /// Its first process.
    pub(crate) init: &'static str,
    pub(crate) modules: &'static [&'static str],
    /// Programs of this host, with the libraries that they need.
    pub(crate) programs: &'static [&'static str],
    /// MiB of a file system on its disk; 0: none.
    pub(crate) disk_mib: u32,
}

pub(crate) fn guest() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(|| {
        make(&Recipe {
            name: "tiny",
            init: INIT,
            modules: &MODULES,
            programs: &[],
            disk_mib: 0,
        })
    })
}

/// Made once for each kernel and recipe; copies of this program find what the first has made.
pub(crate) fn make(recipe: &Recipe) -> Guest {
    let folder = root().join("target/guest/tiny");
    fs::create_dir_all(&folder).unwrap();
    // Copies of this program want it too.
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let kernel = kernel(&folder);
    let of = format!(
        "{}{:?}{:?}{}{}",
        recipe.init,
        recipe.modules,
        recipe.programs,
        recipe.disk_mib,
        kernel.display()
    );
    let images = folder.join("images");
    let image = images.join(format!("{}-{}.img", recipe.name, &hex(of.as_bytes())[..12]));
    if !image.exists() {
        build(&folder, &kernel, &image, recipe);
    }
    let sha256 = hex(&fs::read(&image).unwrap());
    Guest {
        image,
        kernel,
        sha256,
    }
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

/// A kernel and its first file system, for a machine that loads them by itself. The ramdisk lies at `to`.
#[allow(dead_code, reason = "one suite's machines start so")]
pub(crate) fn kernel_and_ramdisk(recipe: &Recipe, to: &Path) -> PathBuf {
    let folder = root().join("target/guest/tiny");
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let kernel = kernel(&folder);
    ramdisk(&folder, &kernel, recipe);
    fs::copy(folder.join("iso/boot/initrd"), to).unwrap();
    kernel
}

/// Writes `iso/boot/initrd`.
fn ramdisk(folder: &Path, kernel: &Path, recipe: &Recipe) {
    let name = kernel.file_name().unwrap().to_str().unwrap();
    let version = name.strip_prefix("vmlinuz-").unwrap();
    run("depmod", &["-b", "kernel", version], folder);
    let root = folder.join("root");
    fs::remove_dir_all(&root).ok();
    for dir in [
        "bin",
        "dev",
        "proc",
        "sys",
        "seed",
        "lib/modules",
        "usr/bin",
        "usr/sbin",
    ] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("apt-get install busybox-static");
    symlink("busybox", root.join("bin/sh")).unwrap();
    fs::write(root.join("init"), recipe.init).unwrap();
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut order: Vec<String> = Vec::new();
    for program in recipe.programs {
        program_with_libraries(program, &root);
    }
    for module in recipe.modules {
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
        fs::copy(folder.join(path), root.join(format!("lib/modules/{n:02}-{name}"))).unwrap();
    }
    fs::create_dir_all(folder.join("iso/boot")).unwrap();
    run(
        "sh",
        &[
            "-c",
            "cd root && find . | cpio -o -H newc --quiet | gzip -1 > ../iso/boot/initrd",
        ],
        folder,
    );
}

/// An image that boots by itself.
fn build(folder: &Path, kernel: &Path, image: &Path, recipe: &Recipe) {
    ramdisk(folder, kernel, recipe);
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    let iso = folder.join("iso/boot/grub");
    fs::create_dir_all(&iso).unwrap();
    fs::copy(kernel, folder.join("iso/boot/vmlinuz")).unwrap();
    let menu = "set timeout=0\nlinux /boot/vmlinuz console=ttyS0 quiet panic=-1\ninitrd /boot/initrd\nboot\n";
    fs::write(iso.join("grub.cfg"), menu).unwrap();
    let fresh = image.with_extension("new");
    let mut arguments = vec!["-o", fresh.to_str().unwrap(), "iso"];
    let size = format!("{}M", recipe.disk_mib);
    if recipe.disk_mib > 0 {
        fs::remove_file(folder.join("disk.ext4")).ok();
        run("mke2fs", &["-q", "-t", "ext4", "disk.ext4", &size], folder);
        arguments.extend(["--", "-append_partition", "3", "0x83", "disk.ext4"]);
    }
    run("grub-mkrescue", &arguments, folder);
    fs::rename(fresh, image).unwrap();
    for path in [image, image.parent().unwrap()] {
        let mode = if path == image { 0o644 } else { 0o755 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// A program of this host at the same place, and what it is linked to.
fn program_with_libraries(program: &str, root: &Path) {
    let said = run("ldd", &[program], Path::new("/"));
    let libraries = said.split_whitespace().filter(|w| w.starts_with('/'));
    for path in libraries.chain([program]) {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}
