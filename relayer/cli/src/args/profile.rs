//! `profile`.

use clap::Subcommand;

pub(super) const EXAMPLES: &str = "\
Examples:
  virtengine profile list
  virtengine profile use hpc-testnet-1
  virtengine profile show";

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// All profiles; the one in use is marked.
    #[command(after_help = "\
Examples:
  virtengine profile list
  virtengine profile list -o json")]
    List,
    /// What a profile says.
    #[command(after_help = "\
Examples:
  virtengine profile show
  virtengine profile show hpc-testnet-1 -o json")]
    Show {
        /// Which one [default: the one in use].
        name: Option<String>,
    },
    /// Choose the profile that commands use from now on.
    #[command(after_help = "\
Examples:
  virtengine profile use hpc-testnet-1")]
    Use {
        /// Which one.
        name: String,
    },
}
