use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    virtengine-provider init --home /var/lib/virtengine/provider --hostname gateway.example.com --address 203.0.113.7\n  \
    virtengine-provider init --chain-id hpc-1 --contract wasm1… --rpc http://127.0.0.1:26657 --import mnemonic.txt")]
pub(in crate::cli) struct InitArgs {
    /// Host name in the gateway's certificate; may be repeated [default: localhost].
    #[arg(long)]
    pub(in crate::cli) hostname: Vec<String>,
    /// IP address in the gateway's certificate; may be repeated [default: 127.0.0.1].
    #[arg(long)]
    pub(in crate::cli) address: Vec<IpAddr>,
    /// Chain id.
    #[arg(long)]
    pub(in crate::cli) chain_id: Option<String>,
    /// Address of the registry contract.
    #[arg(long)]
    pub(in crate::cli) contract: Option<String>,
    /// RPC endpoint; may be repeated.
    #[arg(long)]
    pub(in crate::cli) rpc: Vec<String>,
    /// What a unit of gas is paid with, such as 0.025stake.
    #[arg(long)]
    pub(in crate::cli) gas_price: Option<String>,
    /// File with the mnemonic of the paying key, instead of a new one.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) import: Option<PathBuf>,
    /// File with the mnemonic of the operator key, instead of a new one.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) import_operator: Option<PathBuf>,
    /// `file` seals keys with the passphrase in the file that VIRTENGINE_KEYRING_PASSPHRASE_FILE names;
    /// `test` keeps them in the clear, mode 0600 [default: file if that variable is set].
    #[arg(long)]
    pub(in crate::cli) keyring_backend: Option<hpc_chain::keys::Backend>,
    /// Bech32 prefix of the addresses shown.
    #[arg(long, default_value = "wasm")]
    pub(in crate::cli) prefix: String,
}
