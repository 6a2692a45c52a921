use std::sync::Arc;

use hpc_chain::gas::GasPrice;
use hpc_chain::keys::SharedSigner;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::Seen;
use tokio::sync::watch;

use super::super::claims::Claims;
use super::super::wake::Wake;
use crate::config::{Config, Live};
use crate::ops::{Health, Metrics};
use crate::registry::Registry;
use crate::spool::Backlog;
use crate::store::Store;

/// Keys and the addresses of their accounts.
#[derive(Debug, Clone)]
pub struct Signers {
    /// Name of the paying key in the keyring.
    pub name: String,
    /// Pays and signs transactions; none: a key that is used no more, of which a transaction is followed to its end.
    pub relayer: Option<SharedSigner>,
    /// Its account.
    pub address: String,
    /// Name of the key that signs identities of nodes.
    pub operator_name: String,
    /// Signs identities of nodes.
    pub operator: SharedSigner,
    /// Bech32 prefix of both.
    pub prefix: String,
    /// The account that pays the fees by a grant, if it is not the signing one.
    pub granter: Option<String>,
    /// Whether this key also registers and sweeps: one of several does.
    pub duties: bool,
}

impl Signers {
    /// Name and address of the paying key.
    pub(in crate::settle) fn account(&self) -> (&str, &str) {
        (&self.name, &self.address)
    }
}

/// What the drivers of several keys share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// As configured at the start.
    pub config: Config,
    /// As configured now, for the keys that may change.
    pub live: Live,
    /// What a unit of gas is paid with.
    pub price: GasPrice,
    /// The most that a unit of gas is paid with, where nodes ask for more.
    pub ceiling: Option<GasPrice>,
    /// The contract.
    pub client: RegistryClient,
    /// The database.
    pub store: Store,
    /// The chain as last seen.
    pub registry: Arc<Registry>,
    /// Readiness.
    pub health: Arc<Health>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Told when there is something to settle at once.
    pub wake: Arc<Wake>,
    /// Which key has which pages under way.
    pub claims: Arc<Claims>,
    /// How far the database is behind what was accepted.
    pub backlog: Backlog,
    /// The endpoints' newest blocks.
    pub seen: watch::Receiver<Vec<Seen>>,
}

/// The parts of a [`super::Driver`].
#[derive(Debug)]
pub struct DriverParts {
    /// The same for every key.
    pub shared: Shared,
    /// The key.
    pub signers: Signers,
}
