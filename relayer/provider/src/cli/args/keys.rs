use std::path::PathBuf;

use clap::Subcommand;
use hpc_schema::id::ClusterId;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum KeysCommand {
    /// Lists chain keys and their addresses.
    List,
    /// Shows a chain key: operator or relayer.
    Show {
        /// Name of the key.
        name: String,
        /// Only the address.
        #[arg(long)]
        address: bool,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Makes another chain key, for `keys.extra_relayers`, beside the others and sealed like them.
    Add {
        /// Name of the key.
        name: String,
        /// File with a mnemonic to take the key from, mode 0600.
        #[arg(long)]
        import: Option<PathBuf>,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Prints the address of a chain key.
    Address {
        /// Name of the key.
        name: String,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Prints the public key that signs a cluster's commands and tasks, for its record on chain; makes the
    /// key if there is none.
    Task {
        /// The cluster.
        #[arg(long)]
        cluster_id: ClusterId,
    },
}
