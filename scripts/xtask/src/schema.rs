//! The generated files of `schema/`: written from the code, or compared with it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the schema's golden tests, which hold generator and comparison together; without `check` they write anew.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let mut test = Command::new(env!("CARGO"));
    test.current_dir(root).args([
        "test",
        "--quiet",
        "--locked",
        "--package",
        "hpc-schema",
        "--all-features",
        "--test",
        "golden",
    ]);
    if !check {
        test.env("BLESS", "1");
    }
    let output = test.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "{}{}\nRemedy: cargo xtask schema, then look at what changed",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!(
        "schema/json and schema/vectors {}",
        if check {
            "are those of the code"
        } else {
            "are written"
        }
    );
    Ok(())
}
