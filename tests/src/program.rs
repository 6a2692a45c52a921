//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::process;

/// Root of the repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// Path of one of our programs. `HPC_BIN_DIR` names the folder they are in; without it they are built first, once in a
/// test process.
///
/// # Errors
/// If they do not build.
pub fn path(name: &str) -> Result<PathBuf> {
    let path = built()?.join(name);
    anyhow::ensure!(
        path.is_file(),
        "{} is missing. Remedy: cargo build",
        path.display()
    );
    Ok(path)
}

/// The folder they are in, once they are there: from nothing that takes long.
///
/// # Errors
/// If they do not build.
pub fn built() -> Result<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| folder().map_err(|e| format!("{e:#}")));
    folder.as_deref().map_err(|e| anyhow!("{e}"))
}

fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("HPC_BIN_DIR") {
        return Ok(PathBuf::from(folder));
    }
    let mut build = Command::new(env!("CARGO"));
    build
        .current_dir(root())
        // With all features like the tests themselves, so that no dependency is compiled again. Fault injection is
        // inert unless a test's environment names a step to die at.
        .args([
            "build",
            "--quiet",
            "--locked",
            "--bins",
            "--workspace",
            "--all-features",
        ]);
    // What cargo tells a running test about its package would look to build scripts like a change of their own.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if told
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            build.env_remove(&name);
        }
    }
    process::output(&mut build)?;
    // Tests run from target/<profile>/deps, benches from target/<profile>; programs lie where `cargo build` puts them.
    let own = std::env::current_exe().context("cannot tell where this program runs from")?;
    let folder = own.parent().filter(|f| f.ends_with("deps")).unwrap_or(&own);
    let target = folder
        .ancestors()
        .nth(2)
        .context("this program does not run from target/<profile>")?;
    Ok(target.join("debug"))
}
