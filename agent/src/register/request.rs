//! The request: made once, repeated as it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{RegisterRequest, attestation_data, register_message};
use hpc_schema::registration::key_rotation_message;

use super::claims::Claims;
use super::{Csr, RegisterError};
use crate::config::{Config, Token};
use crate::fault;
use crate::key::{Signer, attest};
use crate::probe::fingerprint::Fingerprint;
use crate::random;
use crate::state::{Handover, Pending, Registration, StateDir};

/// The registered key, which agrees that another takes its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Consent<'a> {
    pub(super) old: &'a dyn Signer,
    pub(super) registration: &'a Registration,
}

/// The request of an interrupted registration, or a new one; on the disk before it is sent.
pub(super) async fn pending(
    state: &StateDir,
    claims: &Claims,
    key: &dyn Signer,
    consent: Option<&Consent<'_>>,
) -> Result<Pending, RegisterError> {
    let same = |p: &Pending| {
        p.jti == claims.jti && p.public_key == key.public() && p.handover.is_some() == consent.is_some()
    };
    if let Some(pending) = Pending::load(state)?.filter(same) {
        return Ok(pending);
    }
    let handover = match consent {
        Some(consent) => Some(hand_over(consent, key).await?),
        None => None,
    };
    let csr = Csr::generate(claims.node_id.as_str())?;
    let pending = Pending {
        jti: claims.jti.clone(),
        public_key: key.public(),
        csr: csr.pem,
        tls_key: csr.key_pem.to_string(),
        handover,
    };
    pending.save(state)?;
    fault::point("rotate.signed");
    Ok(pending)
}

async fn hand_over(consent: &Consent<'_>, key: &dyn Signer) -> Result<Handover, RegisterError> {
    let nonce: [u8; 32] = random::bytes().map_err(RegisterError::Random)?;
    let r = consent.registration;
    let message = key_rotation_message(
        &r.chain_id,
        &r.contract,
        &r.cluster_id,
        &r.node_id,
        &key.public(),
        &nonce,
    );
    let signature = consent.old.sign(&message).await?;
    Ok(Handover {
        registration_nonce: STANDARD.encode(nonce),
        rotation_signature: STANDARD.encode(signature),
    })
}

pub(super) async fn request(
    config: &Config,
    token: &Token,
    claims: &Claims,
    key: &dyn Signer,
    pending: &Pending,
    (hostname, fingerprint): (Option<String>, Option<&Fingerprint>),
) -> Result<RegisterRequest, RegisterError> {
    let message = register_message(&claims.jti, &Csr::der(&pending.csr)?);
    let signature = key.sign(&message).await?;
    let handover = pending.handover.as_ref();
    let attestation = match &config.quote {
        None => None,
        Some(pcrs) => {
            let (place, pcrs) = (key.place(), pcrs.clone());
            let data = attestation_data(&key.public(), &message);
            // A TPM takes its time.
            let quoted = tokio::task::spawn_blocking(move || attest(&place, &data, &pcrs)).await;
            Some(quoted.map_err(|e| RegisterError::BadAnswer(e.to_string()))??)
        }
    };
    Ok(RegisterRequest {
        attestation,
        token: token.secret().to_owned(),
        public_key: key.public(),
        csr: pending.csr.clone(),
        csr_signature: STANDARD.encode(signature),
        hostname,
        hardware_fingerprint: fingerprint.map(|f| f.value.clone()),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        probe_port: config.responder.port,
        probe_address: config.responder.advertised,
        node_id: claims.join.then(|| claims.node_id.clone()),
        registration_nonce: handover.map(|h| h.registration_nonce.clone()),
        rotation_signature: handover.map(|h| h.rotation_signature.clone()),
    })
}
