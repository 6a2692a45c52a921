//! Checks the answer against what the token pins, then writes it down: certificate first, state last, so that an
//! interrupted installation is simply repeated.

use std::time::{SystemTime, UNIX_EPOCH};

use hpc_schema::gateway::RegisterResponse;
use hpc_schema::token::TokenClaims;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use super::RegisterError;
use crate::config::Config;
use crate::files::{Durability, Owner, Replace, create_directory, directory_of, write_for};
use crate::probe::fingerprint::Fingerprint;
use crate::state::{Pending, Registration, StateDir};
use crate::uplink::Identity;

pub(super) fn install(
    config: &Config,
    state: &StateDir,
    claims: &TokenClaims,
    pending: &Pending,
    answer: RegisterResponse,
    fingerprint: Option<Fingerprint>,
) -> Result<Registration, RegisterError> {
    check(config, claims, pending, &answer)?;
    // The service's user must be able to read what root writes: it owns the agent's key.
    let owner = Owner::of(&config.key_path).ok();
    for (path, text, mode) in [
        (&config.tls.ca_cert, &answer.ca, 0o644),
        (&config.tls.client_key, &pending.tls_key, 0o600),
        (&config.tls.client_cert, &answer.certificate, 0o644),
    ] {
        create_directory(directory_of(path))?;
        write_for(
            owner,
            path,
            text.as_bytes(),
            mode,
            Replace::Yes,
            Durability::Synced,
        )?;
    }
    // A renewed certificate of an earlier registration must not win over this one.
    for old in [state.renewed_identity(), state.renewed_ca()] {
        std::fs::remove_file(old).ok();
    }
    let registration = Registration {
        node_id: answer.node_id,
        cluster_id: answer.cluster_id,
        provider_address: answer.provider_address,
        chain_id: answer.chain_id,
        contract: answer.contract,
        epoch: answer.epoch,
        last_sequence: answer.last_sequence,
        params: answer.params,
        job_ids: answer.job_ids,
        task_public_key: claims.task_key.or(answer.task_public_key),
        public_key: pending.public_key,
        jti: claims.jti.clone(),
        fingerprint,
        registered_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs()),
    };
    registration.save(state)?;
    Pending::remove(state);
    Ok(registration)
}

fn check(
    config: &Config,
    claims: &TokenClaims,
    pending: &Pending,
    answer: &RegisterResponse,
) -> Result<(), RegisterError> {
    let bad = |what: &str| Err(RegisterError::BadAnswer(what.to_owned()));
    if answer.node_id != claims.sub || answer.cluster_id != claims.cluster_id {
        return bad("it names another node than the token");
    }
    if answer.chain_id != claims.chain_id || answer.contract != claims.contract {
        return bad("it names another chain or contract than the token");
    }
    if let (Some(pinned), Some(sent)) = (&claims.task_key, &answer.task_public_key)
        && pinned != sent
    {
        return bad("it names another task key than the token");
    }
    let ca: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(answer.ca.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| RegisterError::BadAnswer(format!("its CA is not PEM: {e}")))?;
    if !ca
        .iter()
        .any(|c| hex::encode(Sha256::digest(c.as_ref())) == claims.ca_sha256)
    {
        return bad("its CA is not the one that the token pins");
    }
    let identity = Identity::from_pem(&config.tls.client_cert, &answer.certificate, &pending.tls_key)?;
    if identity
        .names()
        .is_none_or(|(cluster, node)| *cluster != claims.cluster_id || *node != claims.sub)
    {
        return bad("its certificate names another node");
    }
    Ok(())
}
