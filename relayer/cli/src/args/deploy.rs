//! `deploy`.

use std::path::PathBuf;

use clap::Args;

use super::{Connect, KeyringArgs, SignArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  # the embedded chain, which has the contract built in as code 1
  virtengine deploy --node http://127.0.0.1:26657 --chain-id hpc-local-1 --from owner --gas-prices 0stake

  # any wasmd chain: store the file, then instantiate it
  virtengine deploy --node http://127.0.0.1:26657 --chain-id hpc-testnet-1 --from owner --gas-prices 0.025stake \
--wasm target/wasm/hpc_registry.wasm --admin wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t --profile testnet

It asks nothing: --dry-run shows what it would cost.
The profile is written under --home, named after the chain id unless --profile says otherwise, and is in use from then on.";

#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    /// The contract's wasm file; it is stored first [default, without --code-id: the embedded chain's built-in contract,
    /// else target/wasm/hpc_registry.wasm, else /usr/share/virtengine/hpc_registry.wasm].
    #[arg(long, env = "VIRTENGINE_WASM", value_name = "FILE")]
    pub(crate) wasm: Option<PathBuf>,
    /// A code that the chain has already; --wasm is then not looked at.
    #[arg(long, value_name = "N")]
    pub(crate) code_id: Option<u64>,
    /// Who may change parameters and migrate the contract [default: the signer].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Bech32 prefix of the chain's addresses [default: that of --admin, or wasm].
    #[arg(long, env = "VIRTENGINE_PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Label of the contract on chain.
    #[arg(long, default_value = "hpc-registry")]
    pub(crate) label: String,
    /// JSON file with parameters that differ from the defaults.
    #[arg(long, value_name = "FILE")]
    pub(crate) params_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) sign: SignArgs,
    #[command(flatten)]
    pub(crate) keyring: KeyringArgs,
}
