mod consider;

use std::sync::Arc;
use std::time::Duration;

use hpc_schema::heartbeat::{HeartbeatRequest, verify_heartbeat};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::time::UnixSeconds;
use tokio::time::timeout;

use super::nonce::Nonces;
use super::signatures::{Signatures, Verifiers};
use super::verdict::{Verdict, refuse, repeated, stale};
use crate::config::Live;
use crate::control::Controls;
use crate::identity::PeerIdentity;
use crate::registry::{Node, Registry, Seen, heard_of};
use crate::spool::{Gone, Spool};
use crate::store::{Store, StoreError};
use consider::{Considered, Ready};

/// For what other gateways have accepted: who waits longer has no answer in time, and is told the number known here.
const ON_RECORD: Duration = Duration::from_secs(1);

/// Decides on heartbeats.
#[derive(Debug)]
pub struct Judge {
    registry: Arc<Registry>,
    controls: Arc<Controls>,
    spool: Spool,
    verifiers: Verifiers,
    nonces: Nonces,
    /// Says whether full heartbeats are kept for proofs; none: they are not.
    live: Option<Live>,
    /// Where other gateways take heartbeats in too; none: there are none.
    shared: Option<Store>,
}

impl Judge {
    /// With this record and queue.
    #[must_use]
    pub fn new(registry: Arc<Registry>, controls: Arc<Controls>, spool: Spool, verifiers: Verifiers) -> Self {
        Self {
            registry,
            controls,
            spool,
            verifiers,
            nonces: Nonces::default(),
            live: None,
            shared: None,
        }
    }

    /// The same, with full heartbeats kept for proofs where the configuration says so.
    #[must_use]
    pub fn keeping(mut self, live: Live) -> Self {
        self.live = Some(live);
        self
    }

    /// The same, on a store that other gateways may work on too.
    #[must_use]
    pub fn on(mut self, store: Store) -> Self {
        self.shared = store.is_shared().then_some(store);
        self
    }

    /// Forgets what is no longer needed.
    pub fn prune(&self, now: UnixSeconds) {
        self.nonces.prune(now);
    }

    /// Of these nodes the store has forgotten what was accepted.
    pub fn forget(&self, gone: Vec<Gone>) {
        self.spool.forget(gone);
    }

    /// For how long the database has not taken in what the spool's journal holds.
    #[must_use]
    pub fn behind(&self) -> Duration {
        self.spool.behind()
    }

    /// The last row of a node that could not be read and was written anew, for a day.
    #[must_use]
    pub fn mended(&self) -> Option<String> {
        self.spool.mended()
    }

    /// How full the spool's queue is, in thousandths.
    #[must_use]
    pub fn load_permille(&self) -> usize {
        self.spool.load_permille()
    }

    /// Verifies a heartbeat of a node that is seen like this, and stores its report; an accepted one is durable when this
    /// ends. The request itself is looked at before anything is waited for: thousands may wait, and what was read of one is
    /// the next one's memory. `again` reads it once more, to say what is wrong with a signature.
    pub fn judge<'a, F>(
        &'a self,
        peer: &'a PeerIdentity,
        path_node: &'a str,
        request: &HeartbeatRequest,
        seen: Seen,
        now_ms: u64,
        again: F,
    ) -> impl Future<Output = Verdict> + use<'a, F>
    where
        F: FnOnce() -> Option<HeartbeatRequest> + 'a,
    {
        let considered = self.consider(peer, path_node, request, seen, now_ms);
        self.conclude(considered, again)
    }

    async fn conclude(
        &self,
        Considered {
            against,
            outcome,
            noted,
        }: Considered<'_>,
        again: impl FnOnce() -> Option<HeartbeatRequest>,
    ) -> Verdict {
        let verdict = match (outcome, noted) {
            (Ok(ready), Some(noted)) => self.store(noted, ready).await,
            (Err(verdict), Some(noted)) if noted.is_empty() => Some(verdict),
            (Err(verdict), Some(noted)) => match self.verifiers.verify(noted).await {
                Some(good) => good.then_some(verdict),
                None => Some(Verdict::Unavailable(StoreError::Busy)),
            },
            (_, None) => None,
        };
        if let Some(verdict) = verdict {
            return match (&self.shared, verdict.stale_of()) {
                // Apart: what is seldom needed makes no other heartbeat's memory larger.
                (Some(store), Some(node)) => Box::pin(self.on_record(store, &node, verdict)).await,
                _ => verdict,
            };
        }
        // What is wrong comes in a fixed order; a signature may not be the first.
        match again().map(|request| verify_heartbeat(&request, &against.admission(), &ZebraVerifier)) {
            Some(Err(refusal)) => refuse(refusal, against.node),
            // All is good, and yet nobody has stored it.
            Some(Ok(_)) | None => Verdict::Unavailable(StoreError::Stopped),
        }
    }

    /// Another gateway may have accepted more of the node than is known here yet: the node is told that number, to go on
    /// above it.
    async fn on_record(&self, store: &Store, node: &Node, verdict: Verdict) -> Verdict {
        match timeout(ON_RECORD, heard_of(store, &self.registry, node)).await {
            Ok(Ok(Some(node))) => repeated(stale(node.floor()), node),
            Ok(Ok(None)) => verdict,
            // It is told the number that is known here.
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(cluster = %node.cluster_id, node = %node.node_id,
                    "what other gateways have accepted of the node cannot be read");
                verdict
            }
        }
    }

    /// Has it stored as soon as its signatures are verified; none if one is not good.
    async fn store(&self, noted: Signatures, ready: Ready<'_>) -> Option<Verdict> {
        let Ready {
            node,
            health,
            nonce,
            accept,
        } = ready;
        let (epoch, sequence) = (accept.epoch, accept.sequence);
        let stored = self.verifiers.store(noted, &self.spool, accept).await?;
        if stored.is_ok() {
            nonce.used();
        }
        Some(match stored {
            Ok(done) if done.accepted => Verdict::Accepted {
                epoch,
                sequence,
                health,
            },
            Ok(done) => repeated(stale(done.sequence_ack.max(node.floor())), node),
            Err(e) => Verdict::Unavailable(e),
        })
    }
}

#[cfg(test)]
mod tests;
