use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use crate::config::LoggingConfig;
use crate::helper::{Allowed, Rules, peer, serve};
use crate::install::USER;
use crate::log;
use crate::probe::slurm::SlurmConfig;
use crate::task::user;

/// `helper`: what its unit says on its command line is root's word.
#[derive(Debug, Args)]
pub(super) struct HelperCommand {
    /// The agent's user, the only one beside root who may ask
    #[arg(long, default_value = USER)]
    user: String,
    /// What may be asked for
    #[arg(long, value_enum)]
    allow: Vec<Allowed>,
    /// Folder of Slurm's programs
    #[arg(long, value_name = "DIR")]
    slurm_bin_dir: Option<PathBuf>,
    /// Slurm's configuration file
    #[arg(long, value_name = "FILE")]
    slurm_conf: Option<PathBuf>,
    /// This node's name in Slurm
    #[arg(long, value_name = "NAME")]
    slurm_node_name: Option<String>,
    /// The program that switches the host off with the argument poweroff
    #[arg(long, value_name = "FILE", default_value = "/usr/bin/systemctl")]
    systemctl: PathBuf,
}

impl HelperCommand {
    /// The connection is the standard input, as the service manager hands it over.
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        log::start(&LoggingConfig::default()).map_err(|e| Failure::new(1, e))?;
        let found = user::find(Path::new("/etc"), &self.user).map_err(|e| Failure::new(1, e))?;
        let (uid, _) =
            found.ok_or_else(|| Failure::new(2, format_args!("--user: there is no user {}", self.user)))?;
        let rules = Rules {
            user: uid,
            allowed: self.allow,
            slurm: SlurmConfig {
                // Who asks has seen it here; slurmd may be down.
                enabled: Some(true),
                bin_dir: self.slurm_bin_dir,
                conf: self.slurm_conf,
                node_name: self.slurm_node_name,
                seen: None,
            },
            systemctl: self.systemctl,
        };
        let connection = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| Failure::new(1, e))?;
        let stream = UnixStream::from(connection);
        let peer = peer(&stream).map_err(|e| {
            Failure::new(
                2,
                format_args!(
                    "the standard input is no connection ({e}); virtengine-node-helper.socket starts this"
                ),
            )
        })?;
        let done = serve(stream, peer, &rules).map_err(|e| Failure::new(1, e))?;
        Ok(if done {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
