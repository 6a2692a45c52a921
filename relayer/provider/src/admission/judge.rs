use std::sync::Arc;
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::heartbeat::{
    Admission, HealthStatus, HeartbeatRequest, Registered, VerifiedHeartbeat, verify_heartbeat,
};
use hpc_schema::key::{Verifier, ZebraVerifier};
use hpc_schema::refusal::{Refusal, RefusalKind};
use hpc_schema::time::UnixSeconds;

use super::nonce::Nonces;
use super::signatures::{Notes, Verifiers};
use crate::config::Live;
use crate::control::Controls;
use crate::fault;
use crate::identity::PeerIdentity;
use crate::prove;
use crate::registry::{Node, Registry};
use crate::spool::{Accept, Spool};
use crate::store::StoreError;

/// What becomes of a heartbeat.
#[derive(Debug)]
pub enum Verdict {
    /// Durably stored.
    Accepted {
        /// The registration that it is of.
        epoch: u64,
        /// The report's sequence.
        sequence: u32,
        /// As the node says.
        health: HealthStatus,
    },
    /// Read and refused: HTTP 200 with `accepted: false`.
    Refused {
        /// Why.
        refusal: Refusal,
        /// The node's record, if there is one.
        node: Option<Arc<Node>>,
        /// Nothing is wrong with it but that its number or nonce was used before.
        repeated: bool,
    },
    /// Not a heartbeat of this connection: a problem with this HTTP status.
    Problem {
        /// Status.
        status: u16,
        /// Why.
        refusal: Refusal,
    },
    /// The spool cannot take it now.
    Unavailable(StoreError),
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
        }
    }

    /// The same, with full heartbeats kept for proofs where the configuration says so.
    #[must_use]
    pub fn keeping(mut self, live: Live) -> Self {
        self.live = Some(live);
        self
    }

    /// Forgets what is no longer needed.
    pub fn prune(&self, now: UnixSeconds) {
        self.nonces.prune(now);
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
        let notes = Notes::default();
        let first = self.verify(peer, path_node, request, node.as_deref(), now, &notes);
        let good = match notes.into_signatures() {
            Some(noted) if noted.is_empty() => true,
            Some(noted) => match self.verifiers.verify(noted).await {
                Some(good) => good,
                None => return Verdict::Unavailable(StoreError::Busy),
            },
            None => false,
        };
        // What is wrong comes in a fixed order; a signature may not be the first.
        let verified = if good {
            first
        } else {
            self.verify(peer, path_node, request, node.as_deref(), now, &ZebraVerifier)
        };
        let verified = match verified {
            Ok(verified) => verified,
            Err(refusal) => return refuse(refusal, node),
        };
        let Some(node) = node else {
            return refuse(
                Refusal::whole(Code::UnknownNode, "the node is not registered"),
                None,
            );
        };
        if node.is_deregistered() {
            let refusal = Refusal::whole(Code::NodeDeregistered, "the node has been deregistered");
            return refuse(refusal, Some(node));
        }
        // A repeated heartbeat is told by its sequence, which says more, before its nonce.
        if verified.report.sequence <= node.floor() {
            return repeated(stale(node.floor()), node);
        }
        if !self
            .nonces
            .insert(&peer.cluster_id, &peer.node_id, verified.nonce, now)
        {
            let refusal = Refusal::field(Code::NonceReused, "auth.nonce", "was seen before");
            return repeated(refusal, node);
        }
        fault::point("admit.verified");
        let full = self.full(&node, request, &verified);
        self.store(node, verified, full, now_ms).await
    }

    fn verify(
        &self,
        peer: &PeerIdentity,
        path_node: &str,
        request: &HeartbeatRequest,
        node: Option<&Node>,
        now: UnixSeconds,
        verifier: &impl Verifier,
    ) -> Result<VerifiedHeartbeat, Refusal> {
        let job_ids = self
            .registry
            .cluster(&peer.cluster_id)
            .map(|c| c.job_ids)
            .unwrap_or_default();
        let registered = node.map(|n| Registered {
            key: n.key(),
            tag: &n.tag,
            job_ids,
        });
        let against = Admission {
            path_node_id: path_node,
            certificate_node_id: &peer.node_id,
            certificate_cluster_id: &peer.cluster_id,
            registered,
            now,
        };
        verify_heartbeat(request, &against, verifier)
    }

    /// What a proof needs beside the report, if proofs are kept.
    fn full(&self, node: &Node, request: &HeartbeatRequest, verified: &VerifiedHeartbeat) -> Option<Vec<u8>> {
        if self.live.as_ref()?.get().agents.proofs_kept_ms() == 0 {
            return None;
        }
        let cluster = self.registry.cluster(&node.cluster_id);
        let job_ids = cluster.map(|c| c.job_ids).unwrap_or_default();
        prove::full(request, verified.report.time, node.key(), job_ids)
    }

    async fn store(
        &self,
        node: Arc<Node>,
        verified: VerifiedHeartbeat,
        full: Option<Vec<u8>>,
        now_ms: u64,
    ) -> Verdict {
        let health = verified.heartbeat.health.status;
        let (sequence, nonce) = (verified.report.sequence, verified.nonce);
        let accept = Accept {
            // Verified to be that of the section.
            section_digest: verified.report.section_digest,
            section: verified.section,
            full,
            ..Accept::new(
                (node.cluster_id.clone(), node.node_id.clone()),
                (node.chain.epoch, sequence),
                (verified.report.encode(), verified.report_signature),
                now_ms,
            )
        };
        let epoch = node.chain.epoch;
        let nonce = self.nonces.unless_used(&node.cluster_id, &node.node_id, nonce);
        let stored = self.spool.accept(accept).await;
        if stored.is_ok() {
            nonce.used();
        } else {
            drop(nonce);
        }
        match stored {
            Ok(done) if done.accepted => Verdict::Accepted {
                epoch,
                sequence,
                health,
            },
            Ok(done) => repeated(stale(done.sequence_ack.max(node.floor())), node),
            Err(e) => Verdict::Unavailable(e),
        }
    }
}

fn stale(acked: u32) -> Refusal {
    Refusal::field(
        Code::StaleSequence,
        "heartbeat.sequence_number",
        format_args!("must be above {acked}, which has been accepted"),
    )
}

fn repeated(refusal: Refusal, node: Arc<Node>) -> Verdict {
    Verdict::Refused {
        refusal,
        node: Some(node),
        repeated: true,
    }
}

fn refuse(refusal: Refusal, node: Option<Arc<Node>>) -> Verdict {
    match (refusal.kind, refusal.code) {
        (_, Code::BodyTooLarge) => Verdict::Problem { status: 413, refusal },
        (RefusalKind::Malformed, _) | (_, Code::IdentityMismatch) => Verdict::Problem {
            status: refusal.heartbeat_status(),
            refusal,
        },
        (RefusalKind::Semantic, _) => Verdict::Refused {
            refusal,
            node,
            repeated: false,
        },
    }
}
