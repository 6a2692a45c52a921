//! One test's folder: logs, homes, keys. Kept and shown when the test fails, removed when it passes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::chain::Kind;
use crate::deadline::Deadline;
use crate::program;

/// How much of each log is printed when a test fails.
const TAIL_LINES: usize = 40;

/// The folder of one test.
#[derive(Debug)]
pub struct Scene {
    folder: PathBuf,
    passed: bool,
}

/// Runs a test in a folder of its own, on the chain that `HPC_TEST_CHAIN` names. It has to end in time, which begins when
/// programs and chain are built.
///
/// # Errors
/// What `test` fails with; the folder then stays, and the ends of its logs are printed.
pub fn run(name: &str, test: impl FnOnce(&Scene, Kind) -> Result<()>) -> Result<()> {
    program::built()?;
    Kind::from_environment()?.build()?;
    let _deadline = Deadline::of_test();
    measure(name, test)
}

/// The same of a measurement, which takes as long as it is asked to.
///
/// # Errors
/// As [`run`].
pub fn measure(name: &str, test: impl FnOnce(&Scene, Kind) -> Result<()>) -> Result<()> {
    let kind = Kind::from_environment()?;
    let folder = program::root()
        .join("target/e2e/scenes")
        .join(kind.name())
        .join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot remove the folder of the last run")?;
    }
    fs::create_dir_all(&folder).context("cannot make a test's folder")?;
    let mut scene = Scene {
        folder,
        passed: false,
    };
    let result = test(&scene, kind);
    scene.passed = result.is_ok();
    result
}

impl Scene {
    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where a program logs to.
    #[must_use]
    pub fn log(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.log"))
    }

    /// A folder in the folder, made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scene {
    // Also runs when an assertion panics, which leaves `passed` false.
    fn drop(&mut self) {
        if self.passed {
            drop(fs::remove_dir_all(&self.folder));
            return;
        }
        eprintln!("the test's folder stays: {}", self.folder.display());
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for path in entries.filter_map(Result::ok).map(|e| e.path()) {
            if path.extension().is_some_and(|e| e == "log") {
                print_tail(&path);
            }
        }
    }
}

fn print_tail(path: &Path) {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines
        .get(lines.len().saturating_sub(TAIL_LINES)..)
        .unwrap_or_default()
        .join("\n");
    eprintln!("--- end of {}\n{tail}", path.display());
}
