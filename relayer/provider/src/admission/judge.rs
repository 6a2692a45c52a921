use std::sync::Arc;
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::heartbeat::{
    Admission, HealthStatus, HeartbeatRequest, Registered, VerifiedHeartbeat, verify_heartbeat,
};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::refusal::Refusal;
use hpc_schema::registry::JobIds;
use hpc_schema::time::UnixSeconds;
use tokio::time::timeout;

use super::nonce::{Nonces, Unused};
use super::signatures::{Notes, Signatures, Verifiers};
use super::verdict::{Verdict, refuse, repeated, stale};
use crate::config::Live;
use crate::control::Controls;
use crate::identity::PeerIdentity;
use crate::prove;
use crate::registry::{Node, Registry, heard_of};
use crate::spool::{Accept, Gone, Spool};
use crate::store::{Store, StoreError};

/// For what other gateways have accepted: who waits longer has no answer in time, and is told the number known here.
const ON_RECORD: Duration = Duration::from_secs(1);

/// A heartbeat with nothing left to object to but its signatures.
#[derive(Debug)]
struct Ready<'a> {
    node: &'a Arc<Node>,
    health: HealthStatus,
    nonce: Unused<'a>,
    accept: Accept,
}

/// Judges a heartbeat as if all its signatures were good, and notes them; none if something cannot even be a key or signature.
fn unsigned(
    request: &HeartbeatRequest,
    against: &Admission<'_>,
) -> (Result<VerifiedHeartbeat, Refusal>, Option<Signatures>) {
    let notes = Notes::default();
    let judged = verify_heartbeat(request, against, &notes);
    (judged, notes.into_signatures())
}

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

    /// Verifies a heartbeat and stores its report; an accepted one is durable when this returns.
    pub async fn judge(
        &self,
        peer: &PeerIdentity,
        path_node: &str,
        request: &HeartbeatRequest,
        now_ms: u64,
    ) -> Verdict {
        let now = UnixSeconds(now_ms / 1000);
        let node = self.registry.node(&peer.cluster_id, &peer.node_id);
        if let Some(disabled) = self.controls.disabled(&peer.cluster_id, &peer.node_id) {
            return refuse((&*disabled).into(), node);
        }
        // In one pass with the signatures taken to be good; then they are verified, together with those of others.
        let cluster = self.registry.cluster(&peer.cluster_id);
        // Once: the owner may change it at any moment, and what is stored must be what was verified.
        let mut job_ids = cluster.map(|c| c.job_ids).unwrap_or_default();
        let registered = node.as_deref().map(|n| Registered {
            key: n.key(),
            tag: &n.tag,
            job_ids,
        });
        let mut against = Admission {
            path_node_id: path_node,
            certificate_node_id: &peer.node_id,
            certificate_cluster_id: &peer.cluster_id,
            registered,
            now,
        };
        let (mut first, mut noted) = unsigned(request, &against);
        // An agent that has not heard of a change yet goes by the setting before it.
        if first.as_ref().is_err_and(|r| r.code == Code::ReportMismatch)
            && let Some(former) = self.registry.former_job_ids(&peer.cluster_id)
        {
            let before = Admission {
                registered: registered.map(|r| Registered { job_ids: former, ..r }),
                ..against
            };
            let again = unsigned(request, &before);
            if again.0.is_ok() {
                (first, noted) = again;
                (against, job_ids) = (before, former);
            }
        }
        let ready = match (first, &node) {
            (Ok(verified), Some(node)) => self.ready(node, (request, job_ids), verified, now_ms),
            (Ok(_), None) => {
                let refusal = Refusal::whole(Code::UnknownNode, "the node is not registered");
                Err(refuse(refusal, None))
            }
            (Err(refusal), node) => Err(refuse(refusal, node.clone())),
        };
        let verdict = match (ready, noted) {
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
        match verify_heartbeat(request, &against, &ZebraVerifier) {
            Err(refusal) => refuse(refusal, node.clone()),
            // All is good, and yet nobody has stored it.
            Ok(_) => Verdict::Unavailable(StoreError::Stopped),
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

    /// What is to be stored, if what is on record has nothing against it.
    fn ready<'a>(
        &'a self,
        node: &'a Arc<Node>,
        (request, job_ids): (&HeartbeatRequest, JobIds),
        verified: VerifiedHeartbeat,
        now_ms: u64,
    ) -> Result<Ready<'a>, Verdict> {
        if node.is_deregistered() {
            let refusal = Refusal::whole(Code::NodeDeregistered, "the node has been deregistered");
            return Err(refuse(refusal, Some(Arc::clone(node))));
        }
        // A repeated heartbeat is told by its sequence, which says more, before its nonce.
        let report = verified.report;
        if report.sequence <= node.floor() {
            return Err(repeated(stale(node.floor()), Arc::clone(node)));
        }
        let (cluster, id) = (&node.cluster_id, &node.node_id);
        let now = UnixSeconds(now_ms / 1000);
        // Before its signatures are verified: nobody guesses the nonce of another request.
        let Some(nonce) = self.nonces.claim(cluster, id, verified.nonce, now) else {
            let refusal = Refusal::field(Code::NonceReused, "auth.nonce", "was seen before");
            return Err(repeated(refusal, Arc::clone(node)));
        };
        let accept = Accept {
            full: self
                .keeps_full()
                .then(|| prove::full(&request.heartbeat, &verified, node.key(), job_ids)),
            // Verified to be that of the section.
            section_digest: report.section_digest,
            section: verified.section,
            ..Accept::new(
                (cluster.clone(), id.clone()),
                (node.chain.epoch, report.sequence),
                (report.encode(), verified.report_signature),
                now_ms,
            )
        };
        Ok(Ready {
            node,
            health: verified.heartbeat.health.status,
            nonce,
            accept,
        })
    }

    /// Whether what a proof needs beside the report is kept.
    fn keeps_full(&self) -> bool {
        let live = self.live.as_ref().map(Live::get);
        live.is_some_and(|live| live.agents.proofs_kept_ms() > 0)
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
            Ok(done) => repeated(stale(done.sequence_ack.max(node.floor())), Arc::clone(node)),
            Err(e) => Verdict::Unavailable(e),
        })
    }
}

#[cfg(test)]
mod tests;
