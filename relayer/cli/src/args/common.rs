//! Groups of options that several commands share.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use hpc_chain::gas::{Adjustment, Coin, GasPrice};
use hpc_chain::keys::Backend;

use crate::parse;

/// Which node and which contract.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connect {
    /// RPC address of a node, e.g. http://127.0.0.1:26657.
    #[arg(long, global = true, env = "VIRTENGINE_NODE", value_name = "URL")]
    pub(crate) node: Option<String>,
    /// Address of the registry contract.
    #[arg(long, global = true, env = "VIRTENGINE_CONTRACT", value_name = "ADDRESS")]
    pub(crate) contract: Option<String>,
    /// Deadline of one call to the node.
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse::duration)]
    pub(crate) call_timeout: Duration,
}

/// A page of a list.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Paging")]
pub(crate) struct Page {
    /// Most entries to ask for at once, 1 to 100.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: Option<u32>,
    /// Go on after this cursor: `next` of the answer before.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) start_after: Option<String>,
    /// Follow the cursor to the end.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Where keys are.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Keyring")]
pub(crate) struct KeyringArgs {
    /// Folder of the keyring, mode 0700 [default: keyring in the home folder].
    #[arg(long, global = true, env = "VIRTENGINE_KEYRING_DIR", value_name = "DIR")]
    pub(crate) keyring_dir: Option<PathBuf>,
    /// How new keys are stored: file (under a passphrase) or test (in the clear, for test chains only).
    #[arg(
        long,
        global = true,
        env = "VIRTENGINE_KEYRING_BACKEND",
        value_name = "BACKEND",
        default_value = "file"
    )]
    pub(crate) keyring_backend: Backend,
}

/// Asking before something is done.
#[derive(Debug, Clone, Args)]
pub(crate) struct Confirm {
    /// Do not ask for confirmation.
    #[arg(short, long, global = true, help_heading = "Transaction")]
    pub(crate) yes: bool,
}

/// A gas limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gas {
    /// Simulated, times the adjustment.
    Auto,
    /// As given.
    Limit(u64),
}

impl FromStr for Gas {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if s == "auto" {
            return Ok(Self::Auto);
        }
        match s.parse() {
            Ok(limit) if limit > 0 => Ok(Self::Limit(limit)),
            _ => Err("must be auto or a positive whole number".to_owned()),
        }
    }
}

/// Who signs, and what it may cost.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Transaction")]
pub(crate) struct SignArgs {
    /// Name of the signing key in the keyring.
    #[arg(long, global = true, env = "VIRTENGINE_FROM", value_name = "KEY")]
    pub(crate) from: Option<String>,
    /// Chain id, part of what is signed.
    #[arg(long, global = true, env = "VIRTENGINE_CHAIN_ID", value_name = "ID")]
    pub(crate) chain_id: Option<String>,
    /// Gas limit: auto (simulate) or a number.
    #[arg(long, global = true, value_name = "auto|N", default_value = "auto")]
    pub(crate) gas: Gas,
    /// What simulated gas is multiplied with.
    #[arg(long, global = true, value_name = "FACTOR", default_value = "1.3")]
    pub(crate) gas_adjustment: Adjustment,
    /// Price of one gas, e.g. 0.025stake; the fee is the limit times this, rounded up.
    #[arg(long, global = true, env = "VIRTENGINE_GAS_PRICES", value_name = "PRICE")]
    pub(crate) gas_prices: Option<GasPrice>,
    /// The fee itself, e.g. 5000stake; instead of --gas-prices.
    #[arg(long, global = true, value_name = "COIN", conflicts_with = "gas_prices")]
    pub(crate) fees: Option<Coin>,
    /// Text that goes on chain with the transaction, at most 256 bytes.
    #[arg(long, global = true, value_name = "TEXT", default_value = "", value_parser = parse::memo)]
    pub(crate) memo: String,
    /// How long to wait for a block to include the transaction, e.g. 90s or 2m.
    #[arg(long, global = true, value_name = "TIME", default_value = "60s", value_parser = parse::duration)]
    pub(crate) timeout: Duration,
    /// Simulate and print what it would cost; sign and send nothing.
    #[arg(long, global = true)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) confirm: Confirm,
}
