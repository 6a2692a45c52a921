//! All that is decided on a heartbeat while its request is at hand: everything but its signatures and the disk.

use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::heartbeat::{
    Admission, HealthStatus, HeartbeatRequest, Registered, VerifiedHeartbeat, verify_heartbeat,
};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::refusal::Refusal;
use hpc_schema::registry::JobIds;
use hpc_schema::time::UnixSeconds;

use super::super::nonce::{Claim, Nonces};
use super::super::signatures::{Notes, Signatures};
use super::super::verdict::{Verdict, refuse, repeated, stale};
use super::Records;
use crate::config::Live;
use crate::identity::PeerIdentity;
use crate::prove;
use crate::registry::{Node, Seen};
use crate::spool::Accept;

/// Signatures of a heartbeat: over its payload, and over its report.
const SIGNED: usize = 2;

/// A heartbeat with nothing left to object to but its signatures.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) node: Arc<Node>,
    pub(super) epoch: u64,
    pub(super) sequence: u32,
    pub(super) health: HealthStatus,
}

/// What a heartbeat is held against.
#[derive(Debug)]
pub(super) struct Against {
    peer: Arc<PeerIdentity>,
    node: Option<Arc<Node>>,
    job_ids: JobIds,
    now: UnixSeconds,
}

impl Against {
    fn admission(&self) -> Admission<'_> {
        Admission {
            // Who sends it to another path is refused before.
            path_node_id: self.peer.node_id.as_str(),
            certificate_node_id: &self.peer.node_id,
            certificate_cluster_id: &self.peer.cluster_id,
            registered: self.node.as_deref().map(|n| Registered {
                key: n.key(),
                tag: &n.tag,
                job_ids: self.job_ids,
            }),
            now: self.now,
        }
    }

    /// What becomes of one with a signature that is not good: what is wrong comes in a fixed order, and that may not be the
    /// first.
    pub(super) fn refused(&self, request: &HeartbeatRequest<'_>) -> Verdict {
        match verify_heartbeat(request, &self.admission(), &ZebraVerifier) {
            Err(refusal) => refuse(refusal, self.node.clone()),
            Ok(_) => {
                tracing::error!(cluster = %self.peer.cluster_id, node = %self.peer.node_id,
                    "a heartbeat was refused for its signatures, and by themselves they are good; its node is told to come \
                     again: report this fault of the program");
                Verdict::Unjudged
            }
        }
    }
}

/// A heartbeat of which all is known but whether its signatures are good.
#[derive(Debug)]
pub(super) struct Considered {
    pub(super) against: Against,
    /// What is to be stored if they are, or what becomes of it then.
    pub(super) outcome: Result<(Ready, Box<Accept>), Verdict>,
    /// They; none if something cannot even be a key or signature.
    pub(super) noted: Option<Signatures>,
}

/// What decides on a heartbeat that has been considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decides {
    /// What was found already.
    Outcome,
    /// Whether its signatures are good.
    Signatures,
    /// Another look that verifies them one by one, to say what is wrong with them.
    Anew,
}

impl Considered {
    /// Nothing is stored but by its two signatures: one that has fewer would count as good together with others.
    pub(super) fn decides(&self) -> Decides {
        match (&self.outcome, &self.noted) {
            (Err(_), Some(noted)) if noted.is_empty() => Decides::Outcome,
            (Err(_), Some(_)) => Decides::Signatures,
            (Ok(_), Some(noted)) if noted.len() >= SIGNED => Decides::Signatures,
            (Ok(_), Some(_)) | (_, None) => Decides::Anew,
        }
    }
}

/// Judges a heartbeat as if all its signatures were good, and notes them; none if something cannot even be a key or signature.
fn unsigned(
    request: &HeartbeatRequest<'_>,
    against: &Admission<'_>,
) -> (Result<VerifiedHeartbeat, Refusal>, Option<Signatures>) {
    let notes = Notes::default();
    let judged = verify_heartbeat(request, against, &notes);
    (judged, notes.into_signatures())
}

impl Records {
    /// What becomes of a heartbeat if its signatures are good. If it is to be stored its nonce is claimed.
    pub(super) fn consider(
        &self,
        peer: &Arc<PeerIdentity>,
        request: &HeartbeatRequest<'_>,
        (Seen { node, cluster }, nonces): (Seen, Option<Nonces>),
        (now_ms, claim): (u64, &Claim),
    ) -> Considered {
        // Once: the owner may change it at any moment, and what is stored must be what was verified.
        let job_ids = cluster.map(|c| c.job_ids).unwrap_or_default();
        let mut against = Against {
            peer: Arc::clone(peer),
            node,
            job_ids,
            now: UnixSeconds(now_ms / 1000),
        };
        if let Some(disabled) = self.controls.disabled(&peer.cluster_id, &peer.node_id) {
            let refused = refuse((&*disabled).into(), against.node.clone());
            return Considered {
                against,
                outcome: Err(refused),
                noted: Some(Vec::new()),
            };
        }
        // In one pass with the signatures taken to be good; then they are verified, together with those of others.
        let (mut first, mut noted) = unsigned(request, &against.admission());
        // An agent that has not heard of a change yet goes by the setting before it.
        if first.as_ref().is_err_and(|r| r.code == Code::ReportMismatch)
            && let Some(former) = self.registry.former_job_ids(&peer.cluster_id)
        {
            against.job_ids = former;
            let again = unsigned(request, &against.admission());
            if again.0.is_ok() {
                (first, noted) = again;
            } else {
                against.job_ids = job_ids;
            }
        }
        let outcome = match (first, against.node.as_ref().zip(nonces.as_ref())) {
            (Ok(verified), Some(known)) => {
                self.ready(peer, known, (request, against.job_ids), verified, (now_ms, claim))
            }
            (Ok(_), None) => {
                let refusal = Refusal::whole(Code::UnknownNode, "the node is not registered");
                Err(refuse(refusal, None))
            }
            (Err(refusal), _) => Err(refuse(refusal, against.node.clone())),
        };
        Considered {
            against,
            outcome,
            noted,
        }
    }

    /// What is to be stored, if what is on record has nothing against it.
    fn ready(
        &self,
        peer: &Arc<PeerIdentity>,
        (node, nonces): (&Arc<Node>, &Nonces),
        (request, job_ids): (&HeartbeatRequest<'_>, JobIds),
        verified: VerifiedHeartbeat,
        (now_ms, claim): (u64, &Claim),
    ) -> Result<(Ready, Box<Accept>), Verdict> {
        if node.is_deregistered() {
            let refusal = Refusal::whole(Code::NodeDeregistered, "the node has been deregistered");
            return Err(refuse(refusal, Some(Arc::clone(node))));
        }
        // A repeated heartbeat is told by its sequence, which says more, before its nonce.
        let report = verified.report;
        if report.sequence <= node.floor() {
            return Err(repeated(stale(node.floor()), Arc::clone(node)));
        }
        let now = UnixSeconds(now_ms / 1000);
        // Before its signatures are verified: nobody guesses the nonce of another request.
        let Some(nonce) = nonces.claim(verified.nonce, now) else {
            let refusal = Refusal::field(Code::NonceReused, "auth.nonce", "was seen before");
            return Err(repeated(refusal, Arc::clone(node)));
        };
        let accept = Box::new(Accept {
            full: self
                .keeps_full()
                .then(|| prove::full(&request.heartbeat, &verified, node.key(), job_ids)),
            // Verified to be that of the section.
            section_digest: report.section_digest,
            section: verified.section,
            ..Accept::new(
                (peer.cluster_id.clone(), peer.node_id.clone()),
                (node.chain.epoch, report.sequence),
                (report.encode(), verified.report_signature),
                now_ms,
            )
        });
        let ready = Ready {
            node: Arc::clone(node),
            epoch: accept.epoch,
            sequence: accept.sequence,
            health: verified.heartbeat.health.status,
        };
        claim.hold(nonce);
        Ok((ready, accept))
    }

    /// Whether what a proof needs beside the report is kept.
    fn keeps_full(&self) -> bool {
        let live = self.live.as_ref().map(Live::get);
        live.is_some_and(|live| live.agents.proofs_kept_ms() > 0)
    }
}
