//! The files of the repository, as git knows them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The workspace's root: two folders above this crate.
pub(crate) fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .context("this crate is not at scripts/xtask")?;
    Ok(root.to_path_buf())
}

/// Paths (relative to the root) of all files that are tracked or about to be: git's ignore rules apply.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git is missing. Remedy: apt-get install git")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let list = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<String> = list
        .lines()
        .map(str::to_owned)
        .filter(|f| root.join(f).is_file())
        .collect();
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

/// A text file's content, or nothing if it is not UTF-8.
pub(crate) fn text(root: &Path, file: &str) -> Result<Option<String>> {
    let bytes = std::fs::read(root.join(file)).with_context(|| format!("cannot read {file}"))?;
    Ok(String::from_utf8(bytes).ok())
}
