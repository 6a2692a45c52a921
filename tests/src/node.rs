//! Programs in JavaScript, with their locked packages.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{process, program};

/// A command that runs a script of `tests/interop/<folder>`; its packages are installed first if they are not.
///
/// # Errors
/// If npm is missing or cannot install.
pub fn script(folder: &str, name: &str) -> Result<Command> {
    let folder = program::root().join("tests/interop").join(folder);
    if stale(&folder)? {
        let mut install = Command::new("npm");
        install
            .current_dir(&folder)
            .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
        process::output(&mut install).context("Remedy: install Node.js 20 or later with npm")?;
    }
    let mut command = Command::new("node");
    command.current_dir(&folder).arg(name);
    Ok(command)
}

/// Runs a script to its end; returns the JSON of the last line that it printed.
///
/// # Errors
/// If it fails.
pub fn run(script: &mut Command) -> Result<Value> {
    let text = process::output(script)?;
    let last = text
        .trim()
        .lines()
        .next_back()
        .context("the script printed nothing")?;
    serde_json::from_str(last).with_context(|| format!("not JSON: {last}"))
}

/// npm keeps a copy of the lock file it installed from, in the order of its own.
fn stale(folder: &Path) -> Result<bool> {
    let installed = folder.join("node_modules/.package-lock.json");
    let lock = folder.join("package-lock.json");
    let Ok(installed) = std::fs::metadata(installed).and_then(|m| m.modified()) else {
        return Ok(true);
    };
    Ok(installed < std::fs::metadata(lock)?.modified()?)
}
