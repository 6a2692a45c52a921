//! `keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::KeyringArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  virtengine keys add owner
  virtengine keys list
  virtengine keys show owner --address

A passphrase is read from the file that VIRTENGINE_KEYRING_PASSPHRASE_FILE names (mode 0600), or asked for.";

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(flatten)]
    pub(crate) keyring: KeyringArgs,
    /// Bech32 prefix of addresses [default: the profile's, or wasm].
    #[arg(long, global = true, env = "VIRTENGINE_PREFIX", value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a new key; its 24 words are shown once.
    #[command(after_help = "\
Examples:
  virtengine keys add owner
  virtengine keys add owner --mnemonic-file owner.words
  virtengine keys add owner --keyring-backend test --keyring-dir ./keyring -o json")]
    Add {
        /// Name in the keyring: 1 to 32 of a-z A-Z 0-9 _ -
        name: String,
        /// Write the words to this new file of mode 0600 instead of standard error.
        #[arg(long, value_name = "FILE")]
        mnemonic_file: Option<PathBuf>,
        /// HD path.
        #[arg(long, value_name = "PATH", default_value = hpc_chain::keys::DEFAULT_PATH)]
        hd_path: String,
    },
    /// Take over a key from its mnemonic, read from a file or standard input.
    #[command(after_help = "\
Examples:
  virtengine keys import owner --mnemonic-file owner.words
  virtengine keys import owner < owner.words")]
    Import {
        /// Name in the keyring: 1 to 32 of a-z A-Z 0-9 _ -
        name: String,
        /// A file with the words [default: standard input].
        #[arg(long, value_name = "FILE")]
        mnemonic_file: Option<PathBuf>,
        /// HD path.
        #[arg(long, value_name = "PATH", default_value = hpc_chain::keys::DEFAULT_PATH)]
        hd_path: String,
    },
    /// Show name, address and public key.
    #[command(after_help = "\
Examples:
  virtengine keys show owner
  virtengine keys show owner --address
  virtengine keys show owner --prefix cosmos -o json")]
    Show {
        /// Name in the keyring.
        name: String,
        /// Print the address alone.
        #[arg(short, long)]
        address: bool,
    },
    /// Show all keys.
    #[command(after_help = "\
Examples:
  virtengine keys list
  virtengine keys list -o json")]
    List,
    /// Delete a key. Without its words it is lost for ever.
    #[command(after_help = "\
Examples:
  virtengine keys delete owner
  virtengine keys delete owner --yes")]
    Delete {
        /// Name in the keyring.
        name: String,
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
    },
}
