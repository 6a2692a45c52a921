//! The system, made once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::process;

/// Debian's release.
const SUITE: &str = "bookworm";
/// What is in it beside the essential: a kernel for virtual machines, systemd, the network.
const PACKAGES: &str =
    "dbus,initramfs-tools,iproute2,kmod,linux-image-cloud-amd64,passwd,procps,systemd,systemd-sysv,udev";
const SIZE: &str = "2G";

/// Starts the program on the second disk, says how it ended, and switches the machine off.
const PAYLOAD: &str = "[Unit]
Description=What the test brings
After=network-online.target
Wants=network-online.target
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p /run/payload && mount -o ro /dev/vdb /run/payload && /run/payload/run; echo \"end $$?\"; sync'
StandardOutput=file:/dev/ttyS1
StandardError=file:/dev/ttyS1

[Install]
WantedBy=multi-user.target
";
const NETWORK: &str = "[Match]\nName=en*\n\n[Network]\nDHCP=ipv4\n";
/// In the tree, which is `$1`.
const CUSTOMIZE: &str = r#"set -eu
cp "$0/payload.service" "$1/etc/systemd/system/"
mkdir -p "$1/etc/systemd/network"
cp "$0/10-all.network" "$1/etc/systemd/network/"
echo guest > "$1/etc/hostname"
printf '127.0.0.1 localhost guest\n' > "$1/etc/hosts"
chroot "$1" systemctl enable --quiet payload.service systemd-networkd.service
chroot "$1" systemctl mask --quiet apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer
rm -rf "$1"/var/cache/apt/*.bin "$1"/var/lib/apt/lists/* "$1"/usr/share/doc "$1"/usr/share/locale "$1"/usr/share/man
"#;

/// A system that boots.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its disk, never written: machines have a copy.
    pub disk: PathBuf,
    /// Its kernel.
    pub kernel: PathBuf,
    /// The first file system of the kernel.
    pub initrd: PathBuf,
}

impl Image {
    /// Debian with systemd, from the cache; made now if it is not there (one to two minutes).
    ///
    /// # Errors
    /// If `mmdebstrap` or `mke2fs` is missing or fails, or this is not root.
    pub fn debian() -> Result<Self> {
        let recipe = [SUITE, PACKAGES, SIZE, PAYLOAD, NETWORK, CUSTOMIZE].join("\n");
        let hash = Sha256::digest(recipe)
            .iter()
            .take(6)
            .fold(String::new(), |mut text, b| {
                text.push_str(&format!("{b:02x}"));
                text
            });
        let folder = cache()?.join("guest").join(format!("debian-{SUITE}-{hash}"));
        let image = Self {
            disk: folder.join("disk.raw"),
            kernel: folder.join("vmlinuz"),
            initrd: folder.join("initrd"),
        };
        if !folder.is_dir() {
            make(&folder)?;
        }
        Ok(image)
    }
}

/// Where scripts keep what outlives the clone (`scripts/lib.sh`).
fn cache() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    variable("VIRTENGINE_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|d| d.join("virtengine")))
        .or_else(|| variable("HOME").map(|d| d.join(".cache/virtengine")))
        .context("neither VIRTENGINE_CACHE nor HOME is set")
}

/// Made beside its place and moved there whole, so that nobody meets half of one.
fn make(folder: &Path) -> Result<()> {
    eprintln!("making a Debian that boots (once, into {})", folder.display());
    let parent = folder.parent().context("no parent")?;
    fs::create_dir_all(parent)?;
    let work = parent.join(format!(".making-{}", std::process::id()));
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    fs::write(work.join("payload.service"), PAYLOAD)?;
    fs::write(work.join("10-all.network"), NETWORK)?;
    fs::write(work.join("customize.sh"), CUSTOMIZE)?;
    let root = work.join("root");
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap
        .args(["--quiet", "--mode=root", "--variant=minbase"])
        .arg(format!("--include={PACKAGES}"))
        .arg(format!(
            "--customize-hook=sh -c '. \"{0}/customize.sh\"' \"{0}\" \"$1\"",
            work.display()
        ))
        .arg(SUITE)
        .arg(&root)
        .args(sources()?);
    process::output(&mut bootstrap)
        .context("cannot make a Debian. Remedy: apt-get install mmdebstrap, and run as root")?;
    let boot = root.join("boot");
    for (prefix, name) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd")] {
        let found = fs::read_dir(&boot)?
            .filter_map(Result::ok)
            .map(|e| e.path())
            .find(|p| {
                p.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
            })
            .with_context(|| format!("no {prefix}* in {}", boot.display()))?;
        fs::rename(&found, work.join(name))?;
    }
    file_system(&root, &work.join("disk.raw"), SIZE)?;
    fs::remove_dir_all(&root)?;
    match fs::rename(&work, folder) {
        // Another test was faster.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&work)?,
        other => other?,
    }
    Ok(())
}

/// An ext4 file system that holds `folder`; nothing is mounted.
pub(super) fn file_system(folder: &Path, file: &Path, size: &str) -> Result<()> {
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext4", "-d"])
        .arg(folder)
        .arg(file)
        .arg(size);
    // Daemons' folders are not on every user's path.
    make.env(
        "PATH",
        format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()),
    );
    process::output(&mut make)
        .map(drop)
        .context("cannot make a disk. Remedy: apt-get install e2fsprogs")
}

/// The mirrors of this machine, as `mmdebstrap` takes them.
///
/// # Errors
/// If this is no Debian.
pub fn sources() -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir("/etc/apt/sources.list.d")
        .context("this machine has no /etc/apt: the test needs Debian")?
        .filter_map(Result::ok)
        .map(|e| e.path())
        .filter(|p| fs::read_to_string(p).unwrap_or_default().contains(SUITE))
        .collect();
    let list = PathBuf::from("/etc/apt/sources.list");
    if fs::read_to_string(&list).is_ok_and(|t| t.contains(SUITE)) {
        files.push(list);
    }
    Ok(files)
}
