use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::Failure;
use crate::config::DEFAULT_KEY_PATH;
use crate::key::{KeyFileError, generate, load};

/// `keygen`.
#[derive(Debug, Args)]
pub(super) struct Keygen {
    /// Directory for agent.key and agent.pub; made if missing
    #[arg(long, default_value = "/etc/virtengine/node-agent/keys")]
    output_dir: PathBuf,
    /// Replace an existing key; the node must then be registered again
    #[arg(long)]
    force: bool,
}

/// `key …`.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Print the public key of a private key file
    Show {
        /// Private key file
        #[arg(long, default_value = DEFAULT_KEY_PATH)]
        key: PathBuf,
    },
}

fn failure(e: &KeyFileError) -> Failure {
    Failure::new(1, e)
}

impl Keygen {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let made = generate(&self.output_dir, self.force).map_err(|e| failure(&e))?;
        println!("private key: {}", made.key_path.display());
        println!("public key:  {}", made.public_path.display());
        println!("{}", made.public);
        Ok(ExitCode::SUCCESS)
    }
}

impl Key {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let Self::Show { key } = self;
        println!("{}", load(&key).map_err(|e| failure(&e))?.public());
        Ok(ExitCode::SUCCESS)
    }
}
