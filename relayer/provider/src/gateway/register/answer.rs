//! What a request for registration is answered, by how far the registration has come.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use hpc_chain::code::contract_sentence;
use hpc_schema::code::Code;
use hpc_schema::gateway::{RegisterPending, RegisterResponse, WaitingFor};
use hpc_schema::refusal::Refusal;
use hpc_schema::time::UnixSeconds;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::Gateway;
use super::super::answer::Failure;
use super::super::certificate::{issue, may_have_one};
use super::super::record::record;
use super::RETRY_REFUSED_MS;
use crate::enrol::Registration;
use crate::identity::{Claims, NodeCsr, NodeSubject, PeerIdentity};

/// How soon a pending registration should be asked for again.
const RETRY_AFTER_SECONDS: u64 = 2;

pub(super) fn pending(registration: &Registration) -> Response {
    let turn = if registration.held {
        WaitingFor::Approval
    } else {
        WaitingFor::Chain
    };
    let body = Json(RegisterPending::new(Code::RegistrationPending, turn));
    (
        StatusCode::ACCEPTED,
        [(RETRY_AFTER, RETRY_AFTER_SECONDS.to_string())],
        body,
    )
        .into_response()
}

pub(super) fn refused(registration: &Registration) -> Failure {
    let code = registration.code.unwrap_or(Code::NotAuthorized);
    let detail = registration.detail.as_deref().map_or_else(
        || "the chain refused the registration".into(),
        |detail| contract_sentence(code, detail),
    );
    Failure {
        status: 403,
        refusal: Refusal::whole(code, detail),
        retry_after: Some(RETRY_REFUSED_MS / 1000 + 1),
        told: None,
    }
}

/// The registration is on chain: the same certificate each time it is asked for, until that has ended. An agent may take none
/// before its clock is right, and repeats its request until then.
pub(super) async fn done(
    gateway: &Gateway,
    claims: &Claims,
    csr: &NodeCsr,
    registration: &Registration,
    now_ms: u64,
) -> Result<Response, Failure> {
    let (cluster_id, node_id) = (&claims.cluster_id, &claims.sub);
    let Some(epoch) = registration.epoch else {
        return Ok(pending(registration));
    };
    // The certificate is of use only once heartbeats are known to belong to the new epoch.
    let Some(node) = gateway
        .registry
        .node(cluster_id, node_id)
        .filter(|n| n.chain.epoch >= epoch)
    else {
        gateway.wake.call();
        return Ok(pending(registration));
    };
    // The answer of a registration that has been replaced would hand out the old identity again.
    if node.chain.epoch > epoch {
        let what = "the node has been registered anew since";
        return Err(Failure::forbidden(Code::TokenUsed, what));
    }
    may_have_one(gateway, Some(&node), false)?;
    let Some((known, task_keys)) = record(gateway, &node).await? else {
        return Ok(pending(registration));
    };
    let former = registration
        .certificate
        .as_deref()
        .and_then(|pem| ended(pem, UnixSeconds(now_ms / 1000)));
    let certificate = match &registration.certificate {
        Some(certificate) if former.is_none() => certificate.clone(),
        _ => {
            let subject = NodeSubject {
                cluster: cluster_id,
                node: node_id,
                epoch,
            };
            // One that was revoked has no other after it.
            let with = former.as_ref();
            issue(gateway, csr, &subject, Some(registration), with, now_ms).await?
        }
    };
    let response = RegisterResponse {
        certificate,
        ca: gateway.ca_bundle(),
        cluster_id: known.cluster_id,
        node_id: known.node_id,
        provider_address: known.provider_address,
        chain_id: known.chain_id,
        contract: known.contract,
        epoch,
        last_sequence: known.last_sequence,
        params: known.params,
        job_ids: known.job_ids,
        task_public_key: known.task_public_key,
        task_keys,
    };
    Ok(Json(response).into_response())
}

/// Whose the certificate is, if it counts no more by then.
fn ended(pem: &str, now: UnixSeconds) -> Option<PeerIdentity> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let peer = PeerIdentity::from_der(&der).ok()?;
    (peer.not_after <= now).then_some(peer)
}
