//! The agents' side: TLS 1.3, one router, bounded in every direction.

mod answer;
mod beside;
mod body;
mod budget;
mod certificate;
mod certificate_cache;
mod challenge;
mod claim;
mod connection;
mod deadline;
mod hand_over;
mod handshake;
mod heartbeat;
mod key_exchange;
mod listener;
#[cfg(test)]
mod look_tests;
#[cfg(test)]
mod namesake_tests;
mod once;
mod orders;
mod overdue;
mod pace;
mod path;
mod places;
mod record;
mod register;
mod result;
mod router;
mod shown;
mod task_key;
mod tasks;
mod tls;
mod turns;
#[cfg(test)]
mod woken;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use hpc_schema::id::{ClusterId, NodeId};
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;

pub use answer::Failure;
pub use challenge::Challenges;
pub use connection::{Connection, Refused};
pub use hand_over::HandOver;
pub use listener::serve;
pub use tls::{ServerCertificate, Tls, TlsError, check_server, client_verifier, server_config};

pub(crate) use budget::{Budget, Held};
pub(crate) use handshake::failed;
pub(crate) use once::{Once, Seldom};

use crate::admission::{Judge, Limiter, network};
use crate::clock;
use crate::config::{Config, Live};
use crate::control::Controls;
use crate::identity::{Anchors, Ca, TokenKeys};
use crate::ops::Metrics;
use crate::registry::{Registry, TaskKeys};
use crate::settle::Wake;
use crate::store::Store;
use crate::task::Waiters;

/// Requests without a client certificate that one address may make within a minute.
const ANONYMOUS_PER_MINUTE: u32 = 600;
/// Requests about tasks that one node may make within a minute.
const WORKING_PER_MINUTE: u32 = 1200;
/// Keys that a limiter remembers, beside those whose buckets connections hold.
const LIMITER_KEYS: usize = 65_536;

/// Everything that a request needs.
#[derive(Debug)]
pub struct Gateway {
    /// As configured at the start.
    pub config: Config,
    /// As configured now, for the keys that may change.
    pub live: Live,
    /// Checks tokens.
    pub tokens: TokenKeys,
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
    pub wake: Arc<Wake>,
    /// For recoveries.
    pub challenges: Challenges,
    /// What operators have decided.
    pub controls: Arc<Controls>,
    /// Nodes that wait for tasks.
    pub waiting: Arc<Waiters>,
    nodes: Limiter<(ClusterId, NodeId)>,
    /// The same of requests about tasks: a task has many phases.
    working: Limiter<(ClusterId, NodeId)>,
    anonymous: Limiter<IpAddr>,
    /// Places of connections without a certificate that counts, by address.
    strangers: Arc<Budget<IpAddr>>,
    /// Places of nodes' connections.
    members: Arc<Budget<(ClusterId, NodeId)>>,
    once: Once,
    /// Nodes push each other out.
    crowded: Seldom,
    trust: RwLock<Trust>,
    /// For open connections.
    trusting: watch::Sender<Option<Arc<dyn ClientCertVerifier>>>,
}

/// Who vouches for nodes.
#[derive(Debug, Clone)]
struct Trust {
    /// Issues certificates.
    ca: Arc<Ca>,
    /// Whose certificates count.
    anchors: Arc<Anchors>,
}

/// The parts of a [`Gateway`].
#[derive(Debug)]
pub struct Parts {
    /// As configured at the start.
    pub config: Config,
    /// As configured now, for the keys that may change.
    pub live: Live,
    /// Issues certificates.
    pub ca: Ca,
    /// Checks tokens.
    pub tokens: TokenKeys,
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
    pub wake: Arc<Wake>,
    /// What operators have decided.
    pub controls: Arc<Controls>,
    /// CAs whose certificates count.
    pub anchors: Anchors,
}

impl Gateway {
    /// From its parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts {
            config,
            live,
            ca,
            tokens,
            tasks,
            registry,
            store,
            judge,
            metrics,
            wake,
            controls,
            anchors,
        } = parts;
        let limits = &config.gateway;
        let keys = LIMITER_KEYS.saturating_add(limits.max_connections);
        let nodes = Limiter::new(limits.requests_per_minute, keys);
        let anonymous = Limiter::new(ANONYMOUS_PER_MINUTE, LIMITER_KEYS);
        let strangers = Budget::new(limits.max_anonymous, limits.max_anonymous_per_address);
        let members = Budget::new(limits.max_connections, limits.max_connections_per_node);
        Self {
            config,
            live,
            tokens,
            tasks,
            registry,
            store,
            judge,
            metrics,
            wake,
            challenges: Challenges::default(),
            controls,
            waiting: Arc::default(),
            working: Limiter::new(WORKING_PER_MINUTE, keys),
            nodes,
            anonymous,
            strangers,
            members,
            once: Once::default(),
            crowded: Seldom::new(),
            trust: RwLock::new(Trust {
                ca: Arc::new(ca),
                anchors: Arc::new(anchors),
            }),
            trusting: watch::Sender::new(None),
        }
    }

    /// What agents are told to trust: the gateway's CA and those trusted beside it, PEM.
    #[must_use]
    pub fn ca_bundle(&self) -> String {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        trust.anchors.bundle().to_owned()
    }

    /// The CAs whose certificates count.
    #[must_use]
    pub fn anchors(&self) -> Arc<Anchors> {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&trust.anchors)
    }

    /// The CA that issues certificates.
    #[must_use]
    pub fn ca(&self) -> Arc<Ca> {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&trust.ca)
    }

    /// Takes another CA, and others trusted beside it, into use. Where one is trusted no more, open connections are judged by
    /// `verifier`, which is of these.
    pub fn set_trust(&self, ca: Ca, anchors: Anchors, verifier: Arc<dyn ClientCertVerifier>) {
        let anchors = Arc::new(anchors);
        let next = Trust {
            ca: Arc::new(ca),
            anchors: Arc::clone(&anchors),
        };
        let before = {
            let mut trust = self.trust.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *trust, next)
        };
        let kept = |der: &Vec<u8>| anchors.ders().contains(der);
        // Each of thousands of connections verifies its certificate again, so not for one that is added.
        if !before.anchors.ders().iter().all(kept) {
            self.trusting.send_replace(Some(verifier));
        }
    }

    /// Moves whenever a CA is trusted no more.
    fn trusting(&self) -> shown::Trusting {
        self.trusting.subscribe()
    }

    /// Takes changed limits into use.
    pub fn retune(&self) {
        let live = self.live.get();
        let limits = &live.gateway;
        self.nodes.set(limits.requests_per_minute);
        self.strangers.set_per_key(limits.max_anonymous_per_address);
        self.members.set_per_key(limits.max_connections_per_node);
    }

    /// The same of a connection, with the node whose certificate TLS has verified.
    fn log_once_of(&self, connection: &Connection, what: &'static str) {
        let from = connection.ip();
        let Some(peer) = &connection.peer else {
            return self.log_once(from, what);
        };
        if let Some(before) = self.once.note(network(from), what, clock::steady()) {
            tracing::warn!(%from, cluster = %peer.cluster_id, node = %peer.node_id, serial = %peer.serial, passed_over = before,
                "refused: {what}; the same from there is not logged for ten minutes");
        }
    }

    /// Logs that an address is refused something, once.
    fn log_once(&self, from: IpAddr, what: &'static str) {
        if let Some(before) = self.once.note(network(from), what, clock::steady()) {
            tracing::warn!(%from, passed_over = before, "refused: {what}; the same from there is not logged for ten minutes");
        }
    }
}
