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
        let database = self.path("/var/lib/dpkg");
        Ok(found
            .into_iter()
            .filter(|p| !p.starts_with(&database))
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
