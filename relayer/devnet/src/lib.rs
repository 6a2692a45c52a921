//! The embedded chain: what `anvil` is to Ethereum. It speaks CometBFT's JSON-RPC, checks transactions as the
//! Cosmos SDK does, runs natively linked contracts with wasmd's events and errors, and keeps its state on disk.
//!
//! It has one validator that nobody sees: no consensus, no light-client proofs, no historic state. Gas is an
//! estimate, never metered. Everything that is not supported answers an error.
//!
//! ```no_run
//! use hpc_devnet::{Config, Devnet, Genesis, GenesisAccount};
//!
//! let account = GenesisAccount::new("wasm1…", "1000000000stake");
//! let chain = Devnet::start(Config::ephemeral(Genesis::new("test-1", vec![account])))?;
//! println!("RPC at {}", chain.rpc_url());
//! chain.produce_block()?;
//! # Ok::<(), hpc_devnet::Error>(())
//! ```

mod address;
mod chain;
mod coin;
mod config;
mod contract;
mod error;
mod gas;
mod genesis;
mod handle;
mod kv;
mod query;
mod rpc;
mod state;
mod stop;
mod tx;

use std::sync::Arc;

pub use address::PREFIX;
pub use chain::{Verified, verify};
pub use coin::{Coins, GasPrice};
pub use config::{BlockMode, Config, Limits};
pub use contract::{NativeContract, Typed};
pub use error::Error;
pub use genesis::{Genesis, GenesisAccount};
pub use handle::{Devnet, Handle};
pub use state::Numbering;

/// The natively linked contracts of this build, by code id − 1.
pub fn codes() -> Vec<Arc<dyn NativeContract>> {
    use hpc_registry::entry::{execute, instantiate, migrate, query};

    vec![Arc::new(Typed::new(
        "hpc-registry",
        instantiate,
        execute,
        query,
        migrate,
    ))]
}
