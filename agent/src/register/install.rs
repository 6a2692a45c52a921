//! Checks the answer against what the token pins, then writes it down: certificate first, state last, so that an
//! interrupted installation is simply repeated.

use std::path::Path;

use hpc_schema::gateway::RegisterResponse;
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::task::verify_rotation;

use super::RegisterError;
use super::claims::Claims;
use crate::command::Journal;
use crate::config::Config;
use crate::fault;
use crate::files::{Durability, FileError, Owner, Replace, create_directory, directory_of, write_for};
use crate::probe::fingerprint::Fingerprint;
use crate::state::{Pending, Registration, StateDir};
use crate::uplink::{CaPin, Identity, Trust, certificates, check_issued, pinned, to_pem};

pub(super) fn install(
    config: &Config,
    state: &StateDir,
    claims: &Claims,
    pending: &Pending,
    answer: RegisterResponse,
    fingerprint: Option<Fingerprint>,
    now: u64,
) -> Result<Registration, RegisterError> {
    let trust = check(config, claims, pending, &answer, now)?;
    let task_public_key = task_key(claims, &answer)?.or(answer.task_public_key);
    fault::point("register.answered");
    // The service's user must be able to read what root writes: it owns the agent's key.
    let owner = Owner::of(&config.key_path).ok();
    let put = |path: &Path, text: &str, mode: u32| -> Result<(), FileError> {
        create_directory(directory_of(path))?;
        write_for(
            owner,
            path,
            text.as_bytes(),
            mode,
            Replace::Yes,
            Durability::Synced,
        )
    };
    put(&config.tls.client_key, &pending.tls_key, 0o600)?;
    put(&config.tls.client_cert, &answer.certificate, 0o644)?;
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
        trusted: trust.pins.clone(),
        fingerprint,
        probe_port: Some(config.responder.port.unwrap_or(0)),
        probe_address: config.responder.advertised,
        registered_at: now,
    };
    // From here on orders are for this node, whenever its first start is; a journal that is there knows more.
    Journal::create(state, now)?;
    // Cut off before the registration is there, a start goes by the former one: until then the CA file holds the CAs of
    // both, and then no other's, as those of a node whose state is lost all count. A running agent, which goes by the
    // former one until it finds this, writes that file under the same lock.
    registration.save_with(state, |former| {
        let former = former.map(|r| Trust::new(r.pins(), &config.tls.ca_cert).certificates());
        let cas = trust.with_file(&former.unwrap_or_default());
        put(&config.tls.ca_cert, &to_pem(&cas), 0o644)?;
        fault::point("register.certified");
        Ok(())
    })?;
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
) -> Result<Trust, RegisterError> {
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
    Ok(Trust {
        pins: sent.iter().map(CaPin::of).collect(),
        known: sent.into(),
    })
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
