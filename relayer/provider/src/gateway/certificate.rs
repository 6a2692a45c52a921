use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    CertificateRequest, CertificateResponse, ChallengeResponse, RecoverRequest, SEQUENCE_BLOCK,
    recover_message,
};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::{Verifier as _, ZebraVerifier};
use hpc_schema::refusal::Refusal;
use hpc_schema::time::{Rfc3339, UnixSeconds};

use super::answer::Failure;
use super::connection::Connection;
use super::once::Seldom;
use super::path::PathIds;
use super::record::record;
use super::{Gateway, body};
use crate::enrol::{self, NoRoom, Registration};
use crate::identity::{NodeCsr, NodeSubject, PeerIdentity};
use crate::registry::Node;
use crate::{clock, spool, store::StoreError};

/// Largest body here: a certificate request and little else.
const MAX_BYTES: usize = 16 * 1024;

/// Issues a node's certificate and puts it on record, with the registration that it answers, in the place of the one that this
/// has. Who asks `with` a certificate gets none once that is revoked.
pub(super) async fn issue(
    gateway: &Gateway,
    csr: &NodeCsr,
    subject: &NodeSubject<'_>,
    registration: Option<&Registration>,
    with: Option<&PeerIdentity>,
    now_ms: u64,
) -> Result<String, Failure> {
    let now = UnixSeconds(now_ms / 1000);
    let NodeSubject { cluster, node, epoch } = *subject;
    let fail = |e: &dyn std::fmt::Display| {
        tracing::error!(%cluster, %node, error = %e, "a certificate could not be issued");
        Failure::unavailable(10, "the gateway's CA is not available")
    };
    let serial = clock::random().map_err(|e| fail(&e))?;
    let lifetime = gateway.live.get().gateway.certificate_lifetime.as_secs();
    let issued = gateway
        .ca()
        .issue_node(csr, subject, now, lifetime, serial)
        .map_err(|e| fail(&e))?;
    let mut tx = gateway.store.begin().await?;
    // Here and not only in memory: what is issued after a revocation would not be revoked by it.
    if let Some(peer) = with
        && enrol::certificate_is_revoked(&mut tx, peer).await?
    {
        tx.rollback().await.map_err(StoreError::from)?;
        return Err(Failure::revoked());
    }
    if let Err(full) = enrol::record_certificate(&mut tx, cluster, node, epoch, &issued, now).await? {
        tx.rollback().await.map_err(StoreError::from)?;
        return Err(no_room(node, full, now));
    }
    let certificate = match registration {
        Some(registration) => enrol::store_certificate(&mut tx, registration, &issued.pem).await?,
        None => issued.pem.clone(),
    };
    tx.commit().await.map_err(StoreError::from)?;
    tracing::info!(%cluster, %node, epoch, serial = %issued.serial, until = %issued.not_after, "certificate issued");
    Ok(certificate)
}

/// 429: as many certificates of the node count as may.
fn no_room(node: &NodeId, full: NoRoom, now: UnixSeconds) -> Failure {
    static LOGGED: Seldom = Seldom::new();
    let until = full.until;
    let what = format!(
        "as many certificates of the node count as may; the first ends at {until}, and an operator may revoke them sooner \
         (virtengine-provider certificate revoke --node-id {node})"
    );
    if let Some(others) = LOGGED.note(clock::steady()) {
        tracing::warn!(%node, others, "no certificate is issued: {what}; others since the last such line");
    }
    Failure {
        status: 429,
        refusal: Refusal::whole(Code::RateLimited, what),
        retry_after: Some(until.since(now).max(1)),
        told: None,
    }
}

/// `POST …/{node_id}/certificate` over mutual TLS.
pub(super) async fn renew(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    PathIds(path_node): PathIds<String>,
    request: Request,
) -> Result<Json<CertificateResponse>, Failure> {
    let bytes = body::read(
        request,
        MAX_BYTES,
        gateway.live.get().gateway.request_timeout.duration(),
    )
    .await?;
    let peer = connection.node(&gateway, &path_node, clock::now())?;
    let request: CertificateRequest = body::json(&bytes)?;
    let csr = NodeCsr::from_pem(&request.csr).map_err(|e| Failure::malformed("csr", e))?;
    let unread = gateway.registry.is_unread(&peer.cluster_id);
    let node = gateway.registry.node(&peer.cluster_id, &peer.node_id);
    let node = may_have_one(&gateway, node.as_deref(), unread)?;
    certify(&gateway, &csr, node, Some(peer)).await.map(Json)
}

/// A certificate for the node's present registration.
async fn certify(
    gateway: &Gateway,
    csr: &NodeCsr,
    node: &Node,
    with: Option<&PeerIdentity>,
) -> Result<CertificateResponse, Failure> {
    let subject = NodeSubject {
        cluster: &node.cluster_id,
        node: &node.node_id,
        epoch: node.chain.epoch,
    };
    let certificate = issue(gateway, csr, &subject, None, with, clock::now_ms()).await?;
    Ok(CertificateResponse {
        certificate,
        ca: gateway.ca_bundle(),
        registration: None,
    })
}

/// `POST …/{node_id}/certificate/challenge`: anybody may ask; only the agent's key can answer.
pub(super) async fn challenge(
    State(gateway): State<Arc<Gateway>>,
    PathIds(path_node): PathIds<String>,
) -> Result<Json<ChallengeResponse>, Failure> {
    let node: NodeId = path_node.parse().map_err(|e| Failure::malformed("node_id", e))?;
    let challenge = clock::random::<32>().map_err(|e| Failure::unavailable(10, e))?;
    let until = gateway.challenges.put(challenge, node, clock::now());
    let expires_at =
        Rfc3339::from_unix(until.0, 0).map_err(|_| Failure::unavailable(60, "the clock is wrong"))?;
    Ok(Json(ChallengeResponse {
        challenge: STANDARD.encode(challenge),
        expires_at,
    }))
}

/// `POST …/{node_id}/certificate/recover`: the agent's key stands in for an expired certificate.
pub(super) async fn recover(
    State(gateway): State<Arc<Gateway>>,
    PathIds(path_node): PathIds<String>,
    request: Request,
) -> Result<Json<CertificateResponse>, Failure> {
    let bytes = body::read(
        request,
        MAX_BYTES,
        gateway.live.get().gateway.request_timeout.duration(),
    )
    .await?;
    let request: RecoverRequest = body::json(&bytes)?;
    let node_id: NodeId = path_node.parse().map_err(|e| Failure::malformed("node_id", e))?;
    let challenge: [u8; 32] = base64_exact(&request.challenge)
        .ok_or_else(|| Failure::malformed("challenge", "must be base64 of 32 bytes"))?;
    let signature: [u8; 64] = base64_exact(&request.signature)
        .ok_or_else(|| Failure::malformed("signature", "must be base64 of 64 bytes"))?;
    let csr = NodeCsr::from_pem(&request.csr).map_err(|e| Failure::malformed("csr", e))?;
    if !gateway.challenges.take(&challenge, &node_id, clock::now()) {
        let what = "the challenge is not this node's, was used, or is older than two minutes";
        let remedy = "ask for a new one: POST …/certificate/challenge";
        return Err(Failure::new(403, Refusal::advised(Code::NonceReused, what, remedy)).of("challenge"));
    }
    // A node id is unique only within its cluster; the signature tells which of its namesakes asks.
    let message = recover_message(&challenge, csr.der());
    let unread = gateway.registry.has_unread();
    let namesakes = gateway.registry.namesakes(&node_id);
    if namesakes.is_empty() {
        let refusal = Refusal::field(Code::UnknownNode, "node_id", "is not registered");
        return Err(Failure::unregistered(refusal, unread));
    }
    let signer = namesakes
        .into_iter()
        .filter(|n| ZebraVerifier.verify(&message, &signature, n.key().as_bytes()))
        // A machine that has moved to another cluster: its newest registration is the one that counts.
        .max_by_key(|n| (!n.is_deregistered(), n.chain.epoch));
    // The one that asks may be of a cluster that has not been read.
    if unread && signer.as_ref().is_none_or(|n| n.is_deregistered()) {
        return Err(Failure::unread());
    }
    let Some(node) = signer else {
        let what = "does not verify over challenge and request with the registered key";
        return Err(Failure::new(
            403,
            Refusal::field(Code::SignatureInvalid, "signature", what),
        ));
    };
    let node = may_have_one(&gateway, Some(&node), unread)?;
    // First: where it gets none, no numbers are given out in vain.
    let issued = certify(&gateway, &csr, node, None).await?;
    // The key is all that a node without a disk has left. What it signs from here on may arrive nowhere, and its disk be
    // lost again.
    let mut registration = record(&gateway, node).await?.map(|(record, _)| record);
    if let Some(record) = &mut registration {
        let above = (record.last_sequence, SEQUENCE_BLOCK);
        record.last_sequence =
            spool::give_out(&gateway.store, &node.cluster_id, &node.node_id, above).await?;
    }
    Ok(Json(CertificateResponse {
        registration,
        ..issued
    }))
}

/// The node, if it may have a certificate; `unread` as it was before the node was looked for.
pub(super) fn may_have_one<'a>(
    gateway: &Gateway,
    node: Option<&'a Node>,
    unread: bool,
) -> Result<&'a Node, Failure> {
    let Some(node) = node else {
        let refusal = Refusal::whole(Code::UnknownNode, "the node is not registered");
        return Err(Failure::unregistered(refusal, unread));
    };
    if node.is_deregistered() {
        let what = "the node has been deregistered";
        return Err(Failure::forbidden(Code::NodeDeregistered, what));
    }
    not_disabled(gateway, &node.cluster_id, &node.node_id)?;
    Ok(node)
}

/// Refuses what comes from a node that an operator has disabled.
pub(super) fn not_disabled(gateway: &Gateway, cluster: &ClusterId, node: &NodeId) -> Result<(), Failure> {
    match gateway.controls.disabled(cluster, node) {
        Some(disabled) => Err(Failure::from(&*disabled)),
        None => Ok(()),
    }
}
