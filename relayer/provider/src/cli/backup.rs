use std::path::PathBuf;

use clap::Subcommand;
use hpc_chain::keys::{Passphrase, read_private};
use serde_json::json;

use super::output::Output;
use super::{admin_of, who};
use crate::admin::{Act, AdminError};
use crate::backup;
use crate::home::Home;
use crate::store::Store;

/// A passphrase shorter than this is refused.
const MIN_CHARS: usize = 12;

/// Backups of the daemon's directory.
#[derive(Debug, Subcommand)]
pub(super) enum BackupCommand {
    /// Writes store, CA, keys and configuration to one file, sealed with a passphrase; the daemon may run meanwhile. A store in
    /// PostgreSQL is not part of it: `pg_dump` saves that.
    #[command(after_help = "Examples:\n  \
        virtengine-provider backup create /backup/provider-$(date +%F).backup --passphrase-file /etc/virtengine/backup-passphrase")]
    Create {
        /// The file; it must not be there yet.
        file: PathBuf,
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
        let unfit = |what: &str| AdminError::Home(format!("{path}: {what}"));
        let text = String::from_utf8(read_private(&self.passphrase_file, 4096)?)
            .map_err(|_| unfit("must be text"))?;
        let passphrase = Passphrase::new(text);
        if passphrase.chars() < MIN_CHARS {
            let what =
                format!("must have at least {MIN_CHARS} characters; make one with: openssl rand -base64 24");
            return Err(unfit(&what).into());
        }
        Ok(passphrase)
    }
}

pub(super) async fn run(home: Home, command: BackupCommand, out: Output) -> anyhow::Result<()> {
    match command {
        BackupCommand::Create { file, sealed } => {
            let passphrase = sealed.passphrase()?;
            let desk = admin_of(home).await?;
            let what = || ("backup.create", file.display().to_string());
            // Begun first: whoever restores it sees that it was made, and by whom.
            Act::note(&desk.store, &who(), what(), "begun", json!({})).await?;
            let made = backup::create(&desk.home, &desk.store, &file, &passphrase).await;
            let (result, detail) = match &made {
                Ok(head) => ("done", json!({ "created_at": head.created_at })),
                Err(e) => ("failed", json!({ "message": e.to_string() })),
            };
            Act::note(&desk.store, &who(), what(), result, detail).await?;
            let head = made?;
            let beside = if head.postgres {
                "; the store is in PostgreSQL: save it with pg_dump"
            } else {
                ""
            };
            let text = format!(
                "{} holds {} as of {}, chain {}{beside}",
                file.display(),
                desk.home.dir().display(),
                head.created_at,
                head.chain_id
            );
            out.done(&text, &head)
        }
        BackupCommand::Restore { file, sealed } => {
            let head = backup::restore(&home, &file, &sealed.passphrase()?, &who()).await?;
            if head.postgres {
                let text = format!(
                    "{} has CA, keys and configuration as of {}, chain {}; bring the store back with pg_restore, then start the daemon",
                    home.dir().display(),
                    head.created_at,
                    head.chain_id
                );
                return out.done(&text, &head);
            }
            let store = Store::open(&home.store()).await?;
            let detail = json!({ "created_at": head.created_at });
            let what = ("backup.restore", file.display().to_string());
            Act::note(&store, &who(), what, "done", detail).await?;
            store.close().await;
            let text = format!(
                "{} is as of {}, chain {}; start the daemon once the one that the backup is of is gone for good",
                home.dir().display(),
                head.created_at,
                head.chain_id
            );
            out.done(&text, &head)
        }
    }
}
