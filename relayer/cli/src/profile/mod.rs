//! Profiles: which chain and contract is meant, so that nobody has to type it.
//!
//! ```text
//! <home>/config.yaml           profile: NAME     which one is in use
//! <home>/profiles/NAME.yaml                      see [`Profile`]
//! <home>/keyring/              the keys, unless --keyring-dir says otherwise
//! ```

mod command;
mod home;

pub(crate) use command::run;
pub(crate) use home::{Home, Place, existing};

use hpc_chain::gas::GasPrice;
use serde::{Deserialize, Serialize};

/// What `deploy` learns and the other commands use. It holds no secret unless the node's address does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// Chain id.
    pub(crate) chain_id: String,
    /// RPC address of a node.
    pub(crate) node: String,
    /// Address of the registry contract.
    pub(crate) contract: String,
    /// Code that the contract runs.
    pub(crate) code_id: u64,
    /// Lower-case hex SHA-256 of that code, as the chain has it; absent where the chain does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<String>,
    /// Price of one gas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gas_prices: Option<GasPrice>,
    /// Bech32 prefix of the chain's addresses.
    pub(crate) prefix: String,
}

/// The part of an address before the last `1`.
pub(crate) fn prefix_of(address: &str) -> Option<&str> {
    address
        .rsplit_once('1')
        .map(|(prefix, _)| prefix)
        .filter(|p| !p.is_empty())
}
