use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::output::say;
use crate::install::{Place, Step, USER, install, restart, settle, uninstall, unsettle};

/// `install`.
#[derive(Debug, Args)]
pub(super) struct Install {
    /// The program that is installed; default: this one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// `uninstall`.
#[derive(Debug, Args)]
pub(super) struct Uninstall {
    /// Takes configuration, keys and state away as well
    #[arg(long)]
    purge: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// A tree (an image) instead of this host; nothing in it is started or stopped
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print what would be done
    #[arg(long)]
    dry_run: bool,
    /// A package brings the files: user, rights, directories and services alone
    #[arg(long, hide = true)]
    packaged: bool,
}

impl Install {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let place = self.common.place()?;
        if self.common.packaged {
            let steps: Vec<Step> = settle(&place).into_iter().chain(restart(&place)).collect();
            return self.common.take(&place, &steps);
        }
        let program = match self.binary {
            Some(path) => path,
            None => std::env::current_exe().map_err(|e| Failure::new(1, e))?,
        };
        if !program.is_file() {
            let what = format_args!("--binary {}: there is no such file", program.display());
            return Err(Failure::new(2, what));
        }
        let code = self.common.take(&place, &install(&place, &program))?;
        if !self.common.dry_run {
            if !place.has_user() {
                say!(
                    "this image has no user {USER}: make it there, and install once more to give it its directories"
                );
            }
            say!(
                "installed; next: the configuration, virtengine-node-agent keygen, doctor, register; then start the service (docs/agent.md)"
            );
        }
        Ok(code)
    }
}

impl Uninstall {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let place = self.common.place()?;
        let held = place.held_by_tasks();
        if self.common.packaged {
            let code = self.common.take(&place, &unsettle(&place))?;
            warn_of(&held);
            return Ok(code);
        }
        let code = self.common.take(&place, &uninstall(&place, self.purge))?;
        if self.common.dry_run {
            return Ok(code);
        }
        if self.purge {
            say!(
                "uninstalled and purged; the node's record on chain stays until the provider deregisters it"
            );
        } else {
            warn_of(&held);
            say!("uninstalled; configuration, keys and state stay; they go with --purge");
        }
        Ok(code)
    }
}

/// A removed agent ends no leases.
fn warn_of(held: &[String]) {
    if !held.is_empty() {
        say!(
            "what tasks have made stays on this host: {}; without the agent nobody ends it",
            held.join(", ")
        );
    }
}

impl Common {
    fn place(&self) -> Result<Place, Failure> {
        if let Some(root) = self.root.as_ref().filter(|r| !r.is_dir()) {
            let what = format_args!("--root {}: there is no such directory", root.display());
            return Err(Failure::new(2, what));
        }
        if !self.dry_run && !rustix::process::geteuid().is_root() {
            return Err(Failure::new(
                1,
                "this needs root; use sudo, or look with --dry-run",
            ));
        }
        Ok(Place::new(self.root.as_deref()))
    }

    fn take(&self, place: &Place, steps: &[Step]) -> Result<ExitCode, Failure> {
        for step in steps {
            if self.dry_run {
                say!("{step}");
                continue;
            }
            let said = step
                .take(place)
                .map_err(|e| Failure::new(1, format_args!("{step}: {e}")))?;
            if let Some(said) = said {
                say!("{said}");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
