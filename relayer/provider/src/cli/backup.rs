use std::path::PathBuf;

use clap::Subcommand;
use hpc_chain::keys::{Passphrase, read_private};

use super::output;
use crate::backup;
use crate::home::Home;

/// A passphrase shorter than this is refused.
const MIN_CHARS: usize = 12;

/// Backups of the daemon's directory.
#[derive(Debug, Subcommand)]
pub(super) enum BackupCommand {
    /// Writes store, CA, keys and configuration to one file, sealed with a passphrase; the daemon may run meanwhile.
    #[command(after_help = "Examples:\n  \
        virtengine-provider backup create --output /backup/provider-$(date +%F).backup --passphrase-file /etc/virtengine/backup-passphrase")]
    Create {
        /// The file; it must not be there yet.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        sealed: Sealed,
    },
    /// Unpacks a backup into the empty directory that --home names.
    #[command(after_help = "Examples:\n  \
        virtengine-provider backup restore /backup/provider-2026-11-22.backup --home /var/lib/virtengine/provider --passphrase-file /etc/virtengine/backup-passphrase\n\n\
        Never start two daemons from one backup, and none beside the one that it was made of: they would sign with the same keys.")]
    Restore {
        /// The backup.
        file: PathBuf,
        #[command(flatten)]
        sealed: Sealed,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Sealed {
    /// File with the passphrase, readable by its owner alone.
    #[arg(long, value_name = "FILE", env = "VIRTENGINE_BACKUP_PASSPHRASE_FILE")]
    passphrase_file: PathBuf,
}

impl Sealed {
    fn passphrase(&self) -> anyhow::Result<Passphrase> {
        let path = self.passphrase_file.display();
        let text = String::from_utf8(read_private(&self.passphrase_file, 4096)?)
            .map_err(|_| anyhow::anyhow!("{path}: must be text"))?;
        let passphrase = Passphrase::new(text);
        anyhow::ensure!(
            passphrase.chars() >= MIN_CHARS,
            "{path}: must have at least {MIN_CHARS} characters; make one with: openssl rand -base64 24"
        );
        Ok(passphrase)
    }
}

pub(super) async fn run(home: &Home, command: BackupCommand) -> anyhow::Result<()> {
    match command {
        BackupCommand::Create { output, sealed } => {
            let head = backup::create(home, &output, &sealed.passphrase()?).await?;
            output::line(&format!(
                "{} holds {} as of {}, chain {}",
                output.display(),
                home.dir().display(),
                head.created_at,
                head.chain_id
            ))
        }
        BackupCommand::Restore { file, sealed } => {
            let head = backup::restore(home, &file, &sealed.passphrase()?).await?;
            output::line(&format!(
                "{} is as of {}, chain {}; start the daemon once the one that the backup is of is gone for good",
                home.dir().display(),
                head.created_at,
                head.chain_id
            ))
        }
    }
}
