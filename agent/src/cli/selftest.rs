use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use super::output::{print, say};
use super::{Failure, Format};
use crate::task::jail::{Attempt, By, JAILS, TRIAL_COMMAND, Tried, attempts};

/// `selftest`.
#[derive(Debug, Args)]
pub(super) struct Selftest {
    /// Try the jails of the task agent's processes and of what they start
    #[arg(long, required = true)]
    sandbox: bool,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// A process that enters a jail and tries.
#[derive(Debug, Args)]
pub(super) struct SandboxTry {
    /// Which jail
    jail: String,
    /// A folder for it
    place: PathBuf,
}

impl SandboxTry {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let tried = attempts(&self.jail, &self.place).map_err(|e| Failure::new(1, e))?;
        let tried = serde_json::to_value(tried).map_err(|e| Failure::new(1, e))?;
        print(&tried, Format::Json)
    }
}

/// A folder of three that goes with the test.
struct Place(PathBuf);

impl Place {
    fn make(name: &str) -> std::io::Result<Self> {
        let random = crate::random::bytes::<8>().map_err(std::io::Error::other)?;
        let place = Self(std::env::temp_dir().join(format!("virtengine-{name}-{}", hex::encode(random))));
        std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(&place.0)?;
        for folder in ["allowed", "forbidden", "secret"] {
            fs::create_dir(place.0.join(folder))?;
            fs::write(place.0.join(folder).join("file"), "x")?;
        }
        fs::remove_file(place.0.join("forbidden/file"))?;
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Below the folder of temporary files: the system takes it away if we cannot.
        fs::remove_dir_all(&self.0).ok();
    }
}

impl Selftest {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let program = std::env::current_exe().map_err(|e| Failure::new(1, e))?;
        let mut all = Vec::new();
        for jail in JAILS {
            all.push(one(&program, jail)?);
        }
        let bad = all.iter().flat_map(failed).count();
        if self.output == Format::Text {
            for tried in &all {
                tell(tried);
            }
            say!("{}", if bad == 0 { "good" } else { "NOT GOOD: see above" });
        } else {
            let shown = serde_json::to_value(&all).map_err(|e| Failure::new(1, e))?;
            print(&shown, self.output)?;
        }
        Ok(if bad == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn one(program: &Path, jail: &str) -> Result<Tried, Failure> {
    let wrong = |e: String| Failure::new(1, format_args!("jail {jail}: {e}"));
    let place = Place::make(jail).map_err(|e| wrong(e.to_string()))?;
    let mut command = Command::new(program);
    command.args([TRIAL_COMMAND, jail]).arg(&place.0).env_clear();
    let output = command.output().map_err(|e| wrong(e.to_string()))?;
    if !output.status.success() {
        return Err(wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| wrong(e.to_string()))
}

/// Whether the kernel has what this falls to.
fn counts(tried: &Tried, attempt: &Attempt) -> bool {
    match attempt.by {
        By::Landlock => tried.enforced.landlock || !attempt.forbidden,
        By::Seccomp => tried.enforced.seccomp || !attempt.forbidden,
    }
}

fn failed(tried: &Tried) -> impl Iterator<Item = &Attempt> {
    tried.attempts.iter().filter(|a| counts(tried, a) && !a.is_good())
}

fn tell(tried: &Tried) {
    for attempt in &tried.attempts {
        let word = match (&attempt.refusal, attempt.is_good()) {
            (Some(e), true) => format!("refused: {e}"),
            (None, true) => "allowed".to_owned(),
            _ if !counts(tried, attempt) => "not enforced: this kernel has no such guard".to_owned(),
            (Some(e), false) => format!("REFUSED, and must not be: {e}"),
            (None, false) => "ALLOWED, and must not be".to_owned(),
        };
        say!("{:<8} {:<32} {word}", attempt.jail, attempt.what);
    }
}
