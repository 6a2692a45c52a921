//! What a chain is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::coin::GasPrice;
use crate::contract::NativeContract;
use crate::genesis::Genesis;

/// When blocks are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMode {
    /// One block every so often, empty ones too.
    Every(Duration),
    /// Only when [`crate::Handle::produce_block`] is called.
    OnDemand,
    /// As soon as a transaction waits, and when [`crate::Handle::produce_block`] is called.
    OnTransaction,
}

/// Bounds on what clients can make the chain hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Transactions waiting for a block.
    pub mempool_txs: usize,
    /// Bytes of transactions waiting for a block.
    pub mempool_bytes: usize,
    /// Bytes of one transaction.
    pub tx_bytes: usize,
    /// Bytes of all transactions in a block.
    pub block_bytes: usize,
    /// Hashes that the mempool remembers.
    pub cache: usize,
    /// Bytes of an HTTP body or websocket message.
    pub body_bytes: usize,
    /// Open connections.
    pub connections: usize,
    /// Open websockets, besides `connections`.
    pub websockets: usize,
    /// Subscriptions of one websocket.
    pub subscriptions: usize,
}

impl Default for Limits {
    /// CometBFT's defaults where it has them.
    fn default() -> Self {
        Self {
            mempool_txs: 5_000,
            mempool_bytes: 64 * 1024 * 1024,
            tx_bytes: 1024 * 1024,
            block_bytes: 4 * 1024 * 1024,
            cache: 10_000,
            body_bytes: 1_000_000,
            connections: 256,
            websockets: 100,
            subscriptions: 5,
        }
    }
}

/// Everything that [`crate::Devnet::start`] needs.
#[derive(Clone)]
pub struct Config {
    /// Where state lives; `None` keeps it in memory.
    pub home: Option<PathBuf>,
    /// Used for a new chain; must agree with the genesis of an existing one.
    pub genesis: Genesis,
    /// Where the RPC listens; port 0 takes a free one.
    pub rpc_addr: SocketAddr,
    /// Allows an address other than loopback.
    pub allow_remote: bool,
    pub blocks: BlockMode,
    pub min_gas_price: GasPrice,
    pub limits: Limits,
    /// Seconds that the first block's clock is behind the machine's; see [`crate::Handle::set_time`].
    pub seconds_behind: u64,
    /// Contracts linked natively; the code id is the index plus one.
    pub codes: Vec<Arc<dyn NativeContract>>,
}

impl Config {
    /// A chain in memory, on a free loopback port, with blocks on demand and no minimum fee.
    pub fn ephemeral(genesis: Genesis) -> Self {
        Self {
            home: None,
            genesis,
            rpc_addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            allow_remote: false,
            blocks: BlockMode::OnDemand,
            min_gas_price: GasPrice::free(),
            limits: Limits::default(),
            seconds_behind: 0,
            codes: crate::codes(),
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("home", &self.home)
            .field("genesis", &self.genesis)
            .field("rpc_addr", &self.rpc_addr)
            .field("allow_remote", &self.allow_remote)
            .field("blocks", &self.blocks)
            .field("min_gas_price", &self.min_gas_price)
            .field("limits", &self.limits)
            .field("seconds_behind", &self.seconds_behind)
            .field(
                "codes",
                &self.codes.iter().map(|code| code.name()).collect::<Vec<_>>(),
            )
            .finish()
    }
}
