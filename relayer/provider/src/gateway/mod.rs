//! The agents' side: TLS 1.3, one router, bounded in every direction.

mod answer;
mod body;
mod certificate;
mod challenge;
mod connection;
mod heartbeat;
mod listener;
mod register;
mod router;
mod tls;

use std::net::IpAddr;
use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};
use tokio::sync::Notify;

pub use answer::Failure;
pub use challenge::Challenges;
pub use connection::Connection;
pub use listener::serve;
pub use tls::{ServerCertificate, TlsError, server_config};

use crate::admission::{Judge, Limiter};
use crate::config::Config;
use crate::identity::{Ca, TokenKey};
use crate::ops::Metrics;
use crate::registry::{Registry, TaskKeys};
use crate::store::Store;

/// Requests without a client certificate that one address may make within a minute.
const ANONYMOUS_PER_MINUTE: u32 = 600;
/// Keys that a limiter remembers.
const LIMITER_KEYS: usize = 65_536;

/// Everything that a request needs.
#[derive(Debug)]
pub struct Gateway {
    /// As configured.
    pub config: Config,
    /// Issues certificates.
    pub ca: Ca,
    /// Checks tokens.
    pub tokens: TokenKey,
    /// Sign commands.
    pub tasks: TaskKeys,
    /// The chain as last seen.
    pub registry: Arc<Registry>,
    /// The database.
    pub store: Store,
    /// Decides on heartbeats.
    pub judge: Judge,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Told when there is something to settle.
    pub wake: Arc<Notify>,
    /// For recoveries.
    pub challenges: Challenges,
    nodes: Limiter<(ClusterId, NodeId)>,
    anonymous: Limiter<IpAddr>,
}

/// The parts of a [`Gateway`].
#[derive(Debug)]
pub struct Parts {
    /// As configured.
    pub config: Config,
    /// Issues certificates.
    pub ca: Ca,
    /// Checks tokens.
    pub tokens: TokenKey,
    /// Sign commands.
    pub tasks: TaskKeys,
    /// The chain as last seen.
    pub registry: Arc<Registry>,
    /// The database.
    pub store: Store,
    /// Decides on heartbeats.
    pub judge: Judge,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Told when there is something to settle.
    pub wake: Arc<Notify>,
}

impl Gateway {
    /// From its parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts {
            config,
            ca,
            tokens,
            tasks,
            registry,
            store,
            judge,
            metrics,
            wake,
        } = parts;
        let nodes = Limiter::new(config.gateway.requests_per_minute, LIMITER_KEYS);
        let anonymous = Limiter::new(ANONYMOUS_PER_MINUTE, LIMITER_KEYS);
        Self {
            config,
            ca,
            tokens,
            tasks,
            registry,
            store,
            judge,
            metrics,
            wake,
            challenges: Challenges::default(),
            nodes,
            anonymous,
        }
    }
}
