//! A clean Debian in a folder, with nothing of ours in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use hpc_tests::guest::sources;
use hpc_tests::process::{self, Process};

/// The release that the packages are tried on.
const SUITE: &str = "bookworm";

/// What runs before a program in the tree: its own mounts, which go with it.
const ENTER: &str = "mount --make-rprivate / && mount --rbind /sys \"$0/sys\" && mount --rbind /dev \"$0/dev\" && \
                     mount -t proc proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";

/// Nothing is stripped, sorted or searched for dependencies: the files are what they are.
const BASE: &str = "Name: base
Version: 12
Release: 1
Summary: A whole system
License: various
AutoReqProv: no
Provides: glibc = 2.36, libgcc = 12, shadow-utils = 4.13, /bin/sh
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%define _binary_payload w1.gzdio
%description
A whole system.
%install
mkdir -p %{buildroot}
cp -a %{tree}/. %{buildroot}/
rm -rf %{buildroot}/dev %{buildroot}/proc %{buildroot}/sys %{buildroot}/var/lib/dpkg %{buildroot}/var/cache
mkdir %{buildroot}/proc %{buildroot}/sys
%files
/*
";

/// A root file system.
#[derive(Debug)]
pub(crate) struct Root {
    folder: PathBuf,
    log: PathBuf,
}

impl Root {
    /// Makes one from Debian's packages, by the mirror that this machine uses.
    ///
    /// # Errors
    /// If `mmdebstrap` is missing or fails, or this is not root.
    pub(crate) fn make(folder: PathBuf, log: PathBuf) -> Result<Self> {
        let sources = sources()?;
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", "--mode=root", SUITE])
            .arg(&folder)
            .args(sources);
        process::output(&mut make)
            .context("cannot make a clean Debian. Remedy: apt-get install mmdebstrap, and run as root")?;
        Ok(Self { folder, log })
    }

    /// An empty one that RPM has a database in.
    ///
    /// # Errors
    /// If `rpm` is missing or fails, or this is not root.
    pub(crate) fn of_packages(folder: PathBuf, log: PathBuf) -> Result<Self> {
        fs::create_dir_all(folder.join("dev"))?;
        // What scripts of packages write to before anything is mounted.
        let null = folder.join("dev/null").display().to_string();
        process::output(Command::new("mknod").args(["--mode=666", &null, "c", "1", "3"]))?;
        let root = Self { folder, log };
        root.rpm(&["--initdb"])?;
        Ok(root)
    }

    /// The whole tree as one package under the names that RPM systems have for what is in it: no mirror of such a system
    /// can be reached from everywhere. Returns the package's path.
    ///
    /// # Errors
    /// If `rpmbuild` fails.
    pub(crate) fn as_package(&self, build: &Path) -> Result<String> {
        let spec = build.join("base.spec");
        fs::write(&spec, BASE)?;
        let define = |name: &str, value: &Path| format!("{name} {}", value.display());
        let mut make = Command::new("rpmbuild");
        make.args(["--quiet", "-bb", "--define", &define("_topdir", build)])
            .args(["--define", &define("tree", &self.folder)])
            .arg(&spec);
        process::output(&mut make).context("Remedy: apt-get install rpm")?;
        Ok(build
            .join("RPMS/x86_64/base-12-1.x86_64.rpm")
            .display()
            .to_string())
    }

    /// RPM on the tree, with its dependencies and scripts.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn rpm(&self, words: &[&str]) -> Result<String> {
        process::output(Command::new("rpm").arg("--root").arg(&self.folder).args(words))
    }

    /// What RPM prints, however it ends.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn rpm_says(&self, words: &[&str]) -> Result<String> {
        let out = Command::new("rpm")
            .arg("--root")
            .arg(&self.folder)
            .args(words)
            .output()?;
        Ok(String::from_utf8(out.stdout)?)
    }

    /// A path of the tree as this machine sees it.
    #[must_use]
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.folder.join(inside.trim_start_matches('/'))
    }

    /// Runs a program in the tree to its end.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        process::output(&mut self.command(words))
    }

    /// Starts one that goes on; its signals reach it, because nothing stands between.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(&self, words: &[&str]) -> Result<Process> {
        Process::start("agent", self.command(words), &self.log)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", ENTER])
            .arg(&self.folder)
            .args(words)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Paths in the tree that carry our name, outside of the package database.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub(crate) fn ours(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        walk(&self.folder, &mut found)?;
        let databases = ["/var/lib/dpkg", "/var/lib/rpm"].map(|d| self.path(d));
        Ok(found
            .into_iter()
            .filter(|p| !databases.iter().any(|d| p.starts_with(d)))
            .map(|p| p.display().to_string())
            .collect())
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains("virtengine") {
            found.push(entry.path());
        } else if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        }
    }
    Ok(())
}
