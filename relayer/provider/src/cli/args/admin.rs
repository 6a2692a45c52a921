use std::path::PathBuf;

use clap::Subcommand;

use crate::audit::Role;
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AdminTokenCommand {
    /// Makes a credential of the admin listener and prints it, this once.
    #[command(after_help = "Examples:\n  \
        virtengine-provider admin-token create --name alice --role operator --expires 720h\n  \
        virtengine-provider admin-token create --name grafana --role viewer --token-file /etc/grafana/provider.token")]
    Create {
        /// Whose it is; stands in the audit log.
        #[arg(long)]
        name: String,
        /// What it allows.
        #[arg(long, value_enum)]
        role: Role,
        /// How long it counts, up to 366 days.
        #[arg(long, default_value = "720h")]
        expires: Span,
        /// Writes it into this new file, mode 0600, instead of printing it.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Lists credentials; never the secrets.
    List,
    /// Makes a credential in place of another, which counts a while longer.
    #[command(
        after_help = "Example:\n  virtengine-provider admin-token rotate 0123456789abcdef --overlap 1h"
    )]
    Rotate {
        /// Id of the old one: the middle part of it, also in the list.
        id: String,
        /// How long the new one counts, up to 366 days.
        #[arg(long, default_value = "720h")]
        expires: Span,
        /// How long the old one counts beside it.
        #[arg(long, default_value = "1h")]
        overlap: Span,
        /// Writes the new one into this new file, mode 0600, instead of printing it.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Takes a credential back at once.
    Revoke {
        /// Its id: the middle part of it, also in the list.
        id: String,
    },
}
