//! Checks the answer against what the token pins, then writes it down: certificate first, state last, so that an
//! interrupted installation is simply repeated.

use hpc_schema::gateway::RegisterResponse;
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::task::verify_rotation;

use super::RegisterError;
use super::claims::Claims;
use crate::command::Journal;
use crate::config::Config;
use crate::fault;
use crate::files::{Durability, Owner, Replace, create_directory, directory_of, write_for};
use crate::probe::fingerprint::Fingerprint;
use crate::state::{Pending, Registration, StateDir};
use crate::uplink::{CaPin, Identity, certificates, check_issued, pinned};

pub(super) fn install(
    config: &Config,
    state: &StateDir,
    claims: &Claims,
    pending: &Pending,
    answer: RegisterResponse,
    fingerprint: Option<Fingerprint>,
    now: u64,
) -> Result<Registration, RegisterError> {
    let trusted = check(config, claims, pending, &answer, now)?;
    let task_public_key = task_key(claims, &answer)?.or(answer.task_public_key);
    fault::point("register.answered");
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
    std::fs::remove_file(state.renewed_identity()).ok();
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
        task_public_key,
        public_key: pending.public_key,
        jti: claims.jti.clone(),
        ca_sha256: claims.ca,
        trusted,
        fingerprint,
        probe_port: Some(config.responder.port.unwrap_or(0)),
        probe_address: config.responder.advertised,
        registered_at: now,
    };
    // From here on orders are for this node, whenever its first start is; a journal that is there knows more.
    Journal::create(state, now)?;
    fault::point("register.certified");
    registration.save(state)?;
    fault::point("register.saved");
    Pending::remove(state);
    Ok(registration)
}

/// The CAs that are trusted from here on: the pinned one has vouched for the answer, and is among them.
fn check(
    config: &Config,
    claims: &Claims,
    pending: &Pending,
    answer: &RegisterResponse,
    now: u64,
) -> Result<Vec<CaPin>, RegisterError> {
    let bad = |what: &str| Err(RegisterError::BadAnswer(what.to_owned()));
    if answer.node_id != claims.node_id || answer.cluster_id != claims.cluster_id {
        return bad("it names another node than the token");
    }
    if answer.chain_id != claims.chain_id || answer.contract != claims.contract {
        return bad("it names another chain or contract than the token");
    }
    if task_key(claims, answer)?.is_some_and(|ours| answer.task_public_key.is_some_and(|sent| ours != sent)) {
        return bad("it names another task key than the token, and no rotation that leads there");
    }
    let identity = Identity::from_pem(&config.tls.client_cert, &answer.certificate, &pending.tls_key)?;
    let ours = (&claims.cluster_id, &claims.node_id);
    let sent = certificates(&answer.ca);
    check_issued(&identity, &[pinned(&sent, claims.ca)?], ours, now)?;
    Ok(sent.iter().map(CaPin::of).collect())
}

/// The key that the token pins, or what it has become by rotations that the one before signed.
fn task_key(claims: &Claims, answer: &RegisterResponse) -> Result<Option<AgentKey>, RegisterError> {
    let Some(pinned) = &claims.task_key else {
        return Ok(None);
    };
    let of = (
        claims.chain_id.as_str(),
        claims.contract.as_str(),
        &claims.cluster_id,
    );
    verify_rotation(pinned, &answer.task_keys, of, &ZebraVerifier)
        .map(Some)
        .map_err(|e| RegisterError::BadAnswer(e.to_string()))
}
