//! The typed client of the registry contract: a method for each query, a builder for each message.

mod data;
mod history;
mod messages;
mod queries;

pub use data::{DataError, events, response_data};
pub use history::Told;

use crate::query::Chain;

/// One registry contract on one chain. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RegistryClient {
    chain: Chain,
    contract: String,
}

impl RegistryClient {
    /// The contract at this bech32 address.
    #[must_use]
    pub fn new(chain: Chain, contract: impl Into<String>) -> Self {
        Self {
            chain,
            contract: contract.into(),
        }
    }

    /// The same contract, of which only answers of at least this height count.
    #[must_use]
    pub fn from_height(&self, floor: u64) -> Self {
        Self::new(self.chain.from_height(floor), self.contract.clone())
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Address of the contract.
    #[must_use]
    pub fn contract(&self) -> &str {
        &self.contract
    }
}
